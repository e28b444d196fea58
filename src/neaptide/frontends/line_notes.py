"""Notes the line outside torch that called each operation, while a step is traced."""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from neaptide.frontends import _torch_private as private

_TORCH = os.path.join(os.path.dirname(os.path.abspath(torch.__file__)), "")  # noqa: PTH118, PTH120, PTH100
_OURS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "")  # noqa: PTH118, PTH120, PTH100


class LineNotes(TorchFunctionMode):
    """While active, every traced node is annotated with file, line and text of its caller.

    The caller is the innermost frame that is neither torch nor neaptide: the user's own line, or that of the
    model library the user calls.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],  # noqa: ARG002 - the signature is torch's
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - traceback objects would cost a millisecond
        while frame is not None and frame.f_code.co_filename.startswith((_TORCH, _OURS)):
            frame = frame.f_back
        if frame is None:
            return func(*args, **(kwargs or {}))
        file, line = frame.f_code.co_filename, frame.f_lineno
        with private.annotate({"line": (file, line, linecache.getline(file, line).strip())}):
            return func(*args, **(kwargs or {}))
