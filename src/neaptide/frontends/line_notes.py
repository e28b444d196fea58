"""Notes the line outside torch that calls each operation, while a step is traced."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from neaptide.frontends.host_traffic import numpy_error, output_error
from neaptide.frontends.notes import Notes
from neaptide.frontends.recording import Line
from neaptide.frontends.trace_errors import unknown_shape
from neaptide.frontends.traced_sizes import is_of_data
from neaptide.frontends.users_code import is_library_file

_TORCH = os.path.join(os.path.dirname(os.path.abspath(torch.__file__)), "")  # noqa: PTH118, PTH120, PTH100
_OURS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "")  # noqa: PTH118, PTH120, PTH100
_SHOWS = frozenset({torch.Tensor.__repr__, torch.Tensor.__format__})
_SETS_FLAG = (torch.Tensor.requires_grad_, vars(torch._C.TensorBase)["requires_grad"].__set__)  # noqa: SLF001 - a property
_MAKES = frozenset({torch.tensor, torch.as_tensor, torch.asarray})


class LineNotes(TorchFunctionMode):
    """While active, the line that calls torch is noted.

    That is the innermost frame that is neither torch nor neaptide: the user's own line, or that of the model
    library the user calls.
    """

    def __init__(self, notes: Notes) -> None:
        super().__init__()
        self._notes = notes

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - traceback objects would cost a millisecond
        while frame is not None and _is_skipped(frame.f_code.co_filename):
            frame = frame.f_back
        if frame is None:
            return func(*args, **(kwargs or {}))
        line = Line(frame.f_code.co_filename, frame.f_lineno)
        if func in _SHOWS and not is_library_file(line.file):
            raise output_error("the step formats a tensor that is known only when it runs")
        if func in _MAKES and args and _is_numpy_array(args[0]) and not is_library_file(line.file):
            raise numpy_error(line.location)
        if func in _SETS_FLAG:
            self._notes.flag_lines[id(args[0])] = line
        before, self._notes.line = self._notes.line, line
        try:
            result = func(*args, **(kwargs or {}))
        finally:
            self._notes.line = before
        if isinstance(result, torch.Tensor) and any(map(is_of_data, result.shape)):
            raise unknown_shape(line.location, getattr(func, "__name__", "an operation"))
        return result


@functools.cache
def _is_skipped(file: str) -> bool:
    return file.startswith((_TORCH, _OURS))


def _is_numpy_array(item: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(item, numpy.ndarray)
