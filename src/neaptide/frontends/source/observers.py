"""Who looks on while a step runs: debuggers, profilers and coverage. What they ask the system, the step does not ask.

The interpreter calls them between two instructions of the step, so their frames stand on the step's.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import types
from collections.abc import Iterator
from typing import Any

from neaptide.frontends.source.users_code import is_library_file, is_ours


def is_observed(frame: types.FrameType) -> bool:
    """Whether what runs in a frame was called by one who looks on, not by the step."""
    current: types.FrameType | None = frame
    while current is not None and not is_ours(current.f_code.co_filename):
        if _is_observer(current):
            return True
        current = current.f_back
    return False


def _is_observer(frame: types.FrameType) -> bool:
    """Whether a frame runs a function that the interpreter calls to tell of the frame behind it, or its package."""
    behind = frame.f_back
    local = behind.f_trace if behind is not None else None
    watching = [*_watching(), *([] if local is None else [local])]
    if any(frame.f_code is code for item in watching for code in _codes(item)):
        return True
    file = frame.f_code.co_filename
    return is_library_file(file) and file.startswith(tuple(_folders(watching)))


def _watching() -> Iterator[Any]:
    """What was registered with the interpreter."""
    hooks = (sys.gettrace(), sys.getprofile(), threading.gettrace(), threading.getprofile())
    yield from (hook for hook in hooks if hook is not None)


def _codes(hook: Any) -> Iterator[types.CodeType]:
    function = getattr(hook, "__func__", hook)
    function = getattr(function, "func", function)  # of a partial
    if not isinstance(function, types.FunctionType):
        function = getattr(type(hook), "__call__", None)  # noqa: B004 - the function itself is wanted
    if isinstance(function, types.FunctionType):
        yield function.__code__


def _folders(watching: list[Any]) -> Iterator[str]:
    """Folders of the packages that watch; a tool of `sys.monitoring` is named after its own."""
    for item in watching:
        module = getattr(item, "__module__", None) or type(item).__module__
        yield from _folder(str(module).partition(".")[0])
    monitoring = getattr(sys, "monitoring", None)
    names = [] if monitoring is None else [monitoring.get_tool(tool) for tool in range(6)]
    for name in names:
        if name is not None:
            yield from _folder(name.removesuffix(".py"))


@functools.cache
def _folder(package: str) -> tuple[str, ...]:
    paths = getattr(sys.modules.get(package), "__path__", ())
    return tuple(os.path.join(path, "") for path in paths)  # noqa: PTH118
