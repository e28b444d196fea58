"""The line outside torch that calls each operation while a step is traced.

No `TorchFunctionMode` notes it. While one is active, torch looks a function up again by its name, and so would apply
twice what the user or a library has wrapped round it; and torch's modules leave their fast paths.
"""

from __future__ import annotations

import functools
import os
import sys
from types import FrameType

import torch

from neaptide.frontends.recording.recording import Line

_TORCH = os.path.join(os.path.dirname(os.path.abspath(torch.__file__)), "")  # noqa: PTH118, PTH120, PTH100
_OURS = __file__.rsplit("recording", 1)[0]  # all rooms of the frontends
_frame_at = sys._getframe  # noqa: SLF001 - a stack summary would read files; a trace may replace the name in `sys`


def calling_line(depth: int = 0) -> Line | None:
    """The innermost line that is neither torch's nor neaptide's: the user's, or a model library's that the user calls.

    `depth` is that of the first frame to look at, as for `sys._getframe`.
    """
    frame = calling_frame(depth + 1)
    return None if frame is None else Line(frame.f_code.co_filename, frame.f_lineno)


def calling_frame(depth: int = 0) -> FrameType | None:
    """The frame of that line."""
    frame: FrameType | None = _frame_at(depth + 1)
    while frame is not None and _is_skipped(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def is_ours(depth: int = 0) -> bool:
    """Whether a frame is one of the code that traces."""
    return _frame_at(depth + 1).f_code.co_filename.startswith(_OURS)


@functools.cache
def _is_skipped(file: str) -> bool:
    return file.startswith((_TORCH, _OURS))
