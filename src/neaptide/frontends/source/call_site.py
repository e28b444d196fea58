"""Who asked: whether a call that has reached a primitive was made by the user, by a library or by one who looks on.

Debuggers, profilers and coverage look on while a step runs. What they ask the system, the step does not ask. The interpreter
calls them between two instructions of the step, so their frames stand on those of the step.
"""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
import threading
import types
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from neaptide.frontends.source.users_code import is_library_file, is_ours


def is_observed(frame: FrameType) -> bool:
    """Whether what runs in a frame was called by one who looks on, not by the step."""
    current: FrameType | None = frame
    while current is not None and not is_ours(current.f_code.co_filename):
        if _is_observer(current):
            return True
        current = current.f_back
    return False


def _is_observer(frame: FrameType) -> bool:
    """Whether a frame runs a function that the interpreter calls to tell of the frame after it, or its package."""
    hooks = [sys.gettrace(), sys.getprofile(), threading.gettrace(), threading.getprofile()]
    hooks += [None if frame.f_back is None else frame.f_back.f_trace]
    watching = [hook for hook in hooks if hook is not None]
    if any(frame.f_code is code for item in watching for code in _codes(item)):
        return True
    file = frame.f_code.co_filename
    return is_library_file(file) and file.startswith(tuple(_folders(watching)))


def _codes(hook: Any) -> Iterator[types.CodeType]:
    function = getattr(hook, "__func__", hook)
    function = getattr(function, "func", function)  # of a partial
    if not isinstance(function, types.FunctionType):
        function = getattr(type(hook), "__call__", None)  # noqa: B004 - the function itself is wanted
    if isinstance(function, types.FunctionType):
        yield function.__code__


def _folders(watching: list[Any]) -> Iterator[str]:
    """Folders of the packages that watch; a tool of `sys.monitoring` is named after its own."""
    modules = [str(getattr(item, "__module__", None) or type(item).__module__) for item in watching]
    monitoring = getattr(sys, "monitoring", None)
    names = [] if monitoring is None else [monitoring.get_tool(tool) for tool in range(6)]
    packages = [
        *(module.partition(".")[0] for module in modules),
        *(n.removesuffix(".py") for n in names if n),
    ]
    for package in packages:
        yield from _folder(package)


@functools.cache
def _folder(package: str) -> tuple[str, ...]:
    paths = getattr(sys.modules.get(package), "__path__", ())
    return tuple(os.path.join(path, "") for path in paths)  # noqa: PTH118


_frame_at = sys._getframe  # noqa: SLF001 - a stack summary would read files; a trace may replace the name in `sys`
# What these read, they use themselves: source lines for a warning, the time of a log record, a module's file.
_FOR_THEMSELVES = ("importlib", "linecache", "warnings", "logging", "traceback", "tokenize")


@functools.cache
def _is_standard_library(file: str) -> bool:
    if file.startswith("<frozen"):
        return True
    installed = tuple(sysconfig.get_path(key) for key in ("purelib", "platlib"))
    own = tuple(sysconfig.get_path(key) for key in ("stdlib", "platstdlib"))
    return file.startswith(own) and not file.startswith(installed) and "site-packages" not in file


def is_generated(frame: FrameType) -> bool:
    """Whether a frame runs code that a library has written, as the `__init__` of a data class: it has no line."""
    return frame.f_code.co_filename == "<string>" and frame.f_globals.get("__name__") != "__main__"


def is_users_frame(frame: FrameType) -> bool:
    """Whether a frame runs the user's own code."""
    file = frame.f_code.co_filename
    return not (is_library_file(file) or is_ours(file) or is_generated(frame))


def users_frame(depth: int, *, hands_on: Callable[[str], bool] | None = None) -> FrameType | None:
    """The user's frame that asked; None where a library or one who looks on (a debugger, say) asked, for itself.

    `depth` is as for `sys._getframe`. The standard library only hands on: after its frames the next one is looked at, as after
    those of files that `hands_on`.
    """
    first = _frame_at(depth + 1)
    found = _first_users_frame(first, hands_on)
    return None if found is None or is_observed(first) else found


def _first_users_frame(first: FrameType, hands_on: Callable[[str], bool] | None) -> FrameType | None:
    frame: FrameType | None = first
    while frame is not None:
        file = frame.f_code.co_filename
        if is_generated(frame):
            pass
        elif _is_standard_library(file):
            if frame.f_globals.get("__name__", "").partition(".")[0] in _FOR_THEMSELVES:
                return None
        elif is_ours(file):
            return None
        elif not is_library_file(file):
            return frame
        elif hands_on is None or not hands_on(file):
            return None
        frame = frame.f_back
    return None


def direct_user() -> FrameType | None:
    """The frame that called the caller of this, if it is the user's."""
    frame = _frame_at(2)
    return frame if is_users_frame(frame) and not is_observed(frame) else None
