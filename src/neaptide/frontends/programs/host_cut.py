"""Where a step is cut in two so that its host code runs after the program (`host_code`).

The step is traced statement by statement until one has an effect on the host. The cut is in front of that statement.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from neaptide.errors import CaptureError, HostEffectError
from neaptide.frontends import _torch_private as private
from neaptide.frontends.dispatch.recorder import Recorder
from neaptide.frontends.programs.captured import StepRequest
from neaptide.frontends.programs.host_code import HostCode
from neaptide.frontends.programs.step_programs import LaterCallError
from neaptide.frontends.source.split_source import StepSource
from neaptide.frontends.state.state_finder import find_state
from neaptide.frontends.state.step_slots import EntryPattern, present_pattern
from neaptide.frontends.state.step_state import StepState
from neaptide.frontends.trace.step_trace import StepCall, trace_step
from neaptide.frontends.watch.object_watch import ObjectWatch
from neaptide.frontends.watch.trace_watch import StateWatch


def not_cut(refusal: CaptureError, reason: str) -> CaptureError:
    """The refusal of a whole step; of host code with the reason why it cannot run after the program."""
    if isinstance(refusal, LaterCallError):
        return LaterCallError(not_cut(refusal.refusal, reason), refusal.call, refusal.entry)
    if not isinstance(refusal, HostEffectError):
        return refusal
    return HostEffectError(
        refusal.what,
        where=refusal.where,
        why=refusal.why,
        next_step=f"{refusal.next_step or 'take it out of the step'}; or move it after the last tensor operation, as a "
        f"statement of the step (not so yet: {reason})",
    )


class _FirstEffect(BaseException):
    """Ends a trace at the first statement that writes Python state; nothing of the user's may catch it."""


@dataclass(frozen=True)
class OnTheWay:
    """A step up to its first effect on the host, in front of which it writes the numbers in `counts`."""

    counts: frozenset[str]
    _cuts: Mapping[bool, Callable[[], HostCode]]  # by whether counts are no effects
    _why_not: str = "no statement of the step itself is host code"

    def cut(self, *, but_counts: bool = False) -> HostCode:
        """The step, cut in front of its first effect; with `but_counts`, numbers that it counts in are none."""
        if but_counts not in self._cuts:
            raise LookupError(self._why_not)
        return self._cuts[but_counts]()


def on_the_way(step: Callable[..., Any], request: StepRequest, entry: EntryPattern | None) -> OnTheWay:
    """Find the first statement of a step that has an effect on the host, or fails to be traced. One trace.

    `entry` is what a later call finds that could not be captured; None for this one.
    """
    try:
        function, rebuild = _unwrapped(step)
        source = StepSource(function)
    except LookupError as reason:
        return OnTheWay(frozenset(), {}, str(reason))
    state = find_state(step, request.extra)
    state.counted = request.counted
    reached = quiet = 0
    operations = -1
    objects = ObjectWatch(state)
    effects: _Effects | None = None
    counts: frozenset[str] = frozenset()
    cuts: dict[bool, int] = {}

    def cut(number: int) -> HostCode:
        if not number:
            raise LookupError("its first statement is such host code")
        return _at(number, function, source, rebuild)

    def mark(number: int) -> None:
        nonlocal reached, quiet, operations, effects, counts
        # Statements right before it that record nothing are host code as well: a rate that is looked up for a log.
        if effects is None:
            effects = _Effects(state, objects)
        elif effects.any_so_far():
            cuts.setdefault(False, quiet or reached)
            if effects.any_so_far(but_counts=True):
                raise _FirstEffect
            counts |= effects.counts()
        reached = number
        now = sum(len(m.recording.records) for m in private.dispatch_modes() if isinstance(m, Recorder))
        if now != operations or (number and source.is_clearing(number - 1)):
            quiet, operations = number, now

    try:
        call = StepCall(rebuild(source.marked(mark)), request.args, request.kwargs, state)
        trace_step(call, entry or present_pattern(state))
    except (_FirstEffect, CaptureError):
        for but_counts in (False, True):
            cuts.setdefault(but_counts, quiet or reached)
    return OnTheWay(counts - request.counted, {which: partial(cut, number) for which, number in cuts.items()})


def cut_again(host: HostCode, step: Callable[..., Any]) -> HostCode:
    """The same cut of another step of the same make."""
    function, rebuild = _unwrapped(step)
    source = StepSource(function)
    if host.at >= source.length:
        raise LookupError("the step has fewer statements")
    return _at(host.at, function, source, rebuild)


def _at(
    number: int,
    function: types.FunctionType,
    source: StepSource,
    rebuild: Callable[[types.FunctionType], Any],
) -> HostCode:
    """The cut at a statement; gradients are cleared in front of host code that cannot see them."""

    def made(moved: tuple[int, ...]) -> HostCode:
        parts = source.cut(number, moved)
        head, bind, tail = rebuild(parts.head), rebuild(parts.bind), rebuild(parts.tail)
        return HostCode(head, bind, tail, number, parts, function)

    clearing = source.clears_gradients(number)
    if clearing and len(clearing) < source.length - number:
        early = made(clearing)
        reached = find_state(early.tail, without=function)
        if not (
            reached.modules or reached.optimizers or any(s.current().requires_grad for s in reached.tensors)
        ):
            return early
    return made(())


class _Effects:
    """What a step does to Python state while it is traced, from the first statement on."""

    def __init__(self, state: StepState, objects: ObjectWatch) -> None:
        self._watch = StateWatch(state)
        self._objects = objects
        self._counted = state.counted
        self._groups = [(g, dict(g)) for o in state.optimizers.values() for g in o.param_groups]

    def counts(self) -> frozenset[str]:
        """Names of the numbers that are written by now."""
        return frozenset(write.name for write in self._watch.written() if write.is_count)

    def any_so_far(self, *, but_counts: bool = False) -> bool:
        """Whether something is written, drawn or changed by now."""
        with private.no_modes():  # the state of torch's generator is a tensor
            if any(watched.has_changed() for watched in self._objects.watched):
                return True
        for write in self._watch.written():
            # A tensor that is left in a place is a result of the program.
            is_known = isinstance(write.after, torch.Tensor) or write.name in self._counted
            if not is_known and not (but_counts and write.is_count):
                return True
        return any(
            now.keys() != then.keys() or any(now[k] is not then[k] for k in then)
            for now, then in self._groups
        )


def _unwrapped(step: Any) -> tuple[types.FunctionType, Callable[[types.FunctionType], Any]]:
    """The function after a step, and how a callable like the step is made of another function."""
    if isinstance(step, functools.partial):
        function, rebuild = _unwrapped(step.func)
        return function, lambda made: functools.partial(rebuild(made), *step.args, **step.keywords)
    if isinstance(step, types.MethodType) and isinstance(step.__func__, types.FunctionType):
        return _plain(step.__func__), lambda made: types.MethodType(made, step.__self__)
    if isinstance(step, types.FunctionType):
        return _plain(step), lambda made: made
    call = getattr(type(step), "__call__", None)  # noqa: B004 - the function itself is wanted
    if isinstance(call, types.FunctionType) and not isinstance(step, torch.nn.Module):
        return _plain(call), lambda made: types.MethodType(made, step)
    raise LookupError("the step is no function with statements of its own")


def _plain(function: types.FunctionType) -> types.FunctionType:
    if hasattr(function, "__wrapped__"):
        raise LookupError("a decorator is around the step")
    return function
