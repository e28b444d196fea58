"""The dims of a trace that may vary: symbols that stand for them, and the lines that asked for their sizes."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from neaptide.errors import CaptureError
from neaptide.frontends.dims.dynamic_dims import SMALLEST, DynamicDim, axes_inwards, dense_strides, examples
from neaptide.frontends.dims.settled_sizes import Assumption, Settling
from neaptide.frontends.objects.places import all_replaced
from neaptide.frontends.recording import _torch_sizes as private
from neaptide.frontends.recording.size_facts import NO_SIZES, SizeFacts
from neaptide.frontends.source.known_fixes import library_line
from neaptide.frontends.source.trace_errors import location, users_line
from neaptide.frontends.source.users_code import is_ours
from neaptide.frontends.state.step_slots import argument_name


class TracedDims:
    """Symbols for dims, in the shape environment of one trace; one whose range is a single size is that number."""

    def __init__(self, mode: Any, dims: Sequence[DynamicDim]) -> None:
        self._mode = mode
        self._dims = dims
        self._example = examples(dims)
        self._lines: dict[int, str] = {}  # by position of what the trace assumed
        self._numbers = {dim.name: dim.low for dim in dims if dim.low == dim.high}
        self._symbols = {
            dim.name: private.new_size(
                mode, dim.name, self._example[dim.name], max(dim.low, SMALLEST), dim.high
            )
            for dim in dims
            if dim.name not in self._numbers
        }
        self._sizes: dict[str, Any] = {**self._numbers, **self._symbols}
        self._of_leaf = {
            place[0]: {axis: d.name for d in dims for at, axis in d.places if at == place[0]}
            for dim in dims
            for place in dim.places
        }

    def has(self, position: int) -> bool:
        """Whether a leaf of the arguments has a dim that may vary."""
        return position in self._of_leaf

    def twin(self, position: int, tensor: torch.Tensor) -> torch.Tensor:
        """A fake tensor for such a leaf."""
        names, axes = self._of_leaf[position], axes_inwards(tensor)
        shape = [
            self._sizes[names[axis]] if axis in names else size for axis, size in enumerate(tensor.shape)
        ]
        strides, dense = dense_strides(shape, axes), dense_strides(tensor.shape, axes)
        gaps = any(
            true != found and size > 1
            for size, true, found in zip(tensor.shape, tensor.stride(), dense, strict=True)
        )
        if gaps or tensor.storage_offset() or type(tensor) is not torch.Tensor:
            raise CaptureError(
                f"{argument_name(position)} cannot have a dim that varies",
                why="it is a part of another tensor or repeats its elements: its strides do not follow from its shape",
                next_step="pass a plain tensor (.contiguous()), or leave it out of dynamic=",
            )
        device = torch.device("cpu") if tensor.device.type == "meta" else tensor.device
        with self._mode:
            fake = torch.empty_strided(shape, strides, dtype=tensor.dtype, device=device)
        return fake.requires_grad_(tensor.requires_grad)

    @contextlib.contextmanager
    def traced(self) -> Iterator[None]:
        """Keep composite operations symbolic, and note which lines ask for sizes, while the context is open."""
        if not self._symbols:
            yield
            return
        with private.symbolic_kernels(), all_replaced(private.sizes_noted(self._mode, self._note)):
            yield

    def _note(self, position: int) -> None:
        frames = [frame for frame in traceback.extract_stack() if not is_ours(frame.filename)]
        call_site = library_line(frames)
        asked = f", asked for at {location(call_site)}" if call_site is not None else ""
        self._lines[position] = (location(users_line(frames)) or "") + asked

    def settled(self) -> SizeFacts:
        """For which sizes the trace holds, when it is over."""
        if not self._dims:
            return NO_SIZES
        symbols = {name: private.symbol_of(size) for name, size in self._symbols.items()}
        known = {name: private.simplified(self._mode, symbol) for name, symbol in symbols.items()}
        known |= {name: private.sympy_integer(number) for name, number in self._numbers.items()}
        assumed = [
            Assumption(formula, self._lines.get(position, ""))
            for position, formula in enumerate(private.assumptions(self._mode))
        ]
        by_symbol = {str(symbol): name for name, symbol in symbols.items()}
        return Settling(self._dims, by_symbol, known, self._example).facts(assumed)
