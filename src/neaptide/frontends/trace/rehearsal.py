"""Refuses a step that does not do the same when it is run twice with everything the same.

What differs then, differs from call to call too: a number of a library's own clock, a counter in an object of C, the
order of a set. Two programs that are traced anyway (before and after the optimizer's state exists) are compared as
they are. Where there is one only, or they differ in the gradients that exist, the step is traced once more.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Sequence
from typing import Any

import torch

from neaptide.errors import CaptureError
from neaptide.frontends import _torch_private as private
from neaptide.frontends.source.users_code import class_file, is_library_file
from neaptide.frontends.state.traced import Trace
from neaptide.frontends.trace.step_trace import StepCall, trace_step

_PHASES = frozenset({"forward", "backward", "optimizer"})


def refuse_changes(call: StepCall, traces: Sequence[Trace], changing: frozenset[str]) -> None:
    """Compare the traces of a step with each other, or with one more where no two are of the same.

    Nothing is refused before two further traces differ, which are alike in all.
    """
    first, entry = traces[-1].listing, traces[-1].entry
    if all(map(_has_plain_update, call.state.optimizers.values())) and any(
        first.difference(trace.listing, _PHASES - {"optimizer"}) is None for trace in traces[:-1]
    ):
        return
    second = trace_step(call, entry, changing).listing
    if first.difference(second, _PHASES) is None:
        return
    where = second.difference(trace_step(call, entry, changing).listing, _PHASES)
    if where is not None:
        raise CaptureError(
            "the step computes with a value that is another one at each call",
            where=where or _definition(call.step),
            why="run twice with the same inputs and state, it does not do the same: a program would keep one value",
            next_step="compute the value outside the step and pass it as an argument, or draw it with torch",
        )


def _has_plain_update(optimizer: torch.optim.Optimizer) -> bool:
    """Whether an update is a library's arithmetic alone: no class and no hook of the user's takes part."""
    hooks = private.optimizer_hooks(optimizer).values()
    return is_library_file(class_file(type(optimizer))) and not any(hooks)


def _definition(step: Callable[..., Any]) -> str | None:
    code = getattr(step, "__code__", None)
    if code is None:
        return None
    line = linecache.getline(code.co_filename, code.co_firstlineno).strip()
    return f"{code.co_filename}:{code.co_firstlineno}: {line}"
