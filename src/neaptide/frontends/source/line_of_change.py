"""Finds the user's line that changes something, by running the step once more and looking after each line."""

from __future__ import annotations

import contextlib
import linecache
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from neaptide.frontends.source.asker import is_users_frame


def line_of_change(has_changed: Callable[[], bool], run: Callable[[], Any]) -> str | None:
    """`file:line: code` of the innermost line of the user's after which something has changed; None if none did.

    Only for a step that is refused anyway: each line costs a look.

    Args:
        has_changed: whether it has changed by now.
        run: runs the step; what it raises is of no matter here.
    """
    search = _Search(has_changed)
    before = sys.gettrace()
    sys.settrace(search.enter)
    try:
        with contextlib.suppress(Exception):  # the error of the first run is the one that is told
            run()
    finally:
        sys.settrace(before)
    search.look()
    return search.found


class _Search:
    def __init__(self, has_changed: Callable[[], bool]) -> None:
        self._has_changed = has_changed
        self._last: tuple[str, int] | None = None
        self.found: str | None = None

    def enter(self, frame: FrameType, _event: str, _arg: Any) -> Any:
        """Called for each new frame; library frames are left alone."""
        return self._line if self.found is None and is_users_frame(frame) else None

    def look(self) -> None:
        """Remember the last line if something has changed by now."""
        if self.found is None and self._last is not None and self._has_changed():
            file, line = self._last
            self.found = f"{file}:{line}: {linecache.getline(file, line).strip()}"

    def _line(self, frame: FrameType, event: str, _arg: Any) -> Any:
        self.look()
        if event == "return":  # the rest of the caller's line may still change it
            self._last = _line_of_user(frame.f_back) or self._last
        else:
            self._last = (frame.f_code.co_filename, frame.f_lineno)
        return self._line


def _line_of_user(frame: FrameType | None) -> tuple[str, int] | None:
    while frame is not None:
        if is_users_frame(frame):
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return None
