"""Who asked: whether a call that has reached a primitive of the standard library was made by the user's code."""

from __future__ import annotations

import functools
import sys
import sysconfig
from collections.abc import Callable
from types import FrameType

from neaptide.frontends.source.observers import is_observed
from neaptide.frontends.source.users_code import is_library_file, is_ours

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

    The standard library only hands on: behind its frames the next one is looked at.

    Args:
        depth: of the first frame to look at, as for `sys._getframe`.
        hands_on: says of a library's file that it only hands on, too.
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


def direct_user(depth: int) -> FrameType | None:
    """The calling frame, if it is the user's."""
    frame = _frame_at(depth + 1)
    return frame if is_users_frame(frame) and not is_observed(frame) else None
