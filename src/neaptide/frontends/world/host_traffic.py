"""Refuses what goes between the user's code and the outside world during a trace, naming the line.

It would happen once, at the trace, and never again when the captured program runs: printing, logging, writing to a
file, drawing from an iterator.
"""

from __future__ import annotations

import builtins
import contextlib
import logging
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import torch

from neaptide.errors import CaptureError, HostEffectError
from neaptide.frontends.objects.places import root_of
from neaptide.frontends.objects.replaced import replaced
from neaptide.frontends.source.observers import is_observed
from neaptide.frontends.source.trace_errors import location, users_line
from neaptide.frontends.source.users_code import is_library_file
from neaptide.frontends.state.step_state import StepState

_NUMBERS = (torch.SymFloat, torch.SymInt)
_SHOWN = "the step formats a tensor that is known only when it runs"
_NEXT = "return the value from the step and print it outside"


@contextlib.contextmanager
def no_host_traffic(state: StepState) -> Iterator[None]:
    """Refuse all of it while the context is open; libraries that the user calls may print."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(replaced(builtins, "print", _unless_library("the step prints while it runs")))
        stack.enter_context(
            replaced(logging.Logger, "handle", _unless_library("the step logs while it runs"))
        )
        for kind in _NUMBERS:
            for name in ("__str__", "__format__", "__repr__"):
                stack.enter_context(replaced(kind, name, _refuse_format))
        for name in ("__format__", "__repr__"):
            stack.enter_context(replaced(torch.Tensor, name, _unless_library(_SHOWN)))
        for stream in {id(s): s for s in (sys.stdout, sys.stderr) if s is not None}.values():
            stack.enter_context(replaced(stream, "write", _unless_library("the step prints while it runs")))
        stack.enter_context(_closed_iterators(state))
        yield


def _unless_library(what: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def refuse(*args: Any, **kwargs: Any) -> Any:
            frame = users_line(traceback.extract_stack()[:-1])
            if frame is None or _caller_is_library(2):
                return original(*args, **kwargs)
            raise output_error(what)

        return refuse

    return make


def _refuse_format(original: Callable[..., Any]) -> Callable[..., Any]:
    def refuse(*args: Any) -> Any:
        if _caller_is_library(2):
            return original(*args)
        raise output_error("the step formats a number that is known only when it runs")

    return refuse


def _caller_is_library(depth: int) -> bool:
    """Whether a call comes from library code; logging's own frames are passed over."""
    frame = sys._getframe(depth)  # noqa: SLF001 - a stack summary would read files
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] == "logging":
        frame = frame.f_back
    file = frame.f_code.co_filename
    return is_library_file(file) or is_observed(frame)


def output_error(what: str) -> HostEffectError:
    """The error for something shown to the outside world by the user's line that is running now."""
    return HostEffectError(
        what,
        where=location(users_line(traceback.extract_stack())),
        why="host output would happen once, at capture, and never again",
        next_step=_NEXT,
    )


class _Closed:
    """Stands for an iterator, an open file or a connection during a trace."""

    def __init__(self, name: str) -> None:
        object.__setattr__(self, "_name", name)

    def _refuse(self) -> CaptureError:
        return CaptureError(
            f"the step reads from or writes to {object.__getattribute__(self, '_name')}",
            where=location(users_line(traceback.extract_stack())),
            why="an iterator, a file or a connection would be used once, at capture, and never again",
            next_step="use it outside the step and pass what it gives as an argument",
        )

    def __getattr__(self, _name: str) -> Any:
        raise self._refuse()

    @staticmethod
    def refuse_use(closed: _Closed, *_args: Any) -> Any:
        """What every way to use it does."""
        raise closed._refuse()


for _use in (
    "iter",
    "next",
    "len",
    "getitem",
    "setitem",
    "delitem",
    "contains",
    "enter",
    "exit",
    "call",
    "bool",
):
    setattr(_Closed, f"__{_use}__", _Closed.refuse_use)


@contextlib.contextmanager
def _closed_iterators(state: StepState) -> Iterator[None]:
    held = [(root, root.get()) for root in map(root_of, state.iterators)]
    for place in state.iterators:
        place.set(_Closed(place.name))
    try:
        yield
    finally:
        for root, content in held:  # a tuple around an iterator is made anew: the old one is put back
            root.set(content)
