"""Tensors as C sees them: a pointer, extents and strides. A slice, a part of a joined result or a transposition is a view."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from neaptide.errors import LoweringError
from neaptide.ir.values import DTYPE_BYTES

C_TYPES: Final = {
    "float32": "float",
    "float64": "double",
    "int8": "int8_t",
    "uint8": "uint8_t",
    "int16": "int16_t",
    "uint16": "uint16_t",
    "int32": "int32_t",
    "uint32": "uint32_t",
    "int64": "int64_t",
    "uint64": "uint64_t",
    "bool": "uint8_t",
}
"""Element types that the kernels take."""


@dataclass(frozen=True, slots=True)
class Place:
    """An address: bytes from the begin of an array."""

    base: str
    offset: int = 0
    is_bytes: bool = True  # the array has bytes as elements, so that an offset needs no cast

    @property
    def text(self) -> str:
        if not self.offset:
            return self.base
        return f"{self.base if self.is_bytes else f'(const unsigned char *){self.base}'} + {self.offset}"

    def moved(self, nbytes: int) -> Place:
        return replace(self, offset=self.offset + nbytes)


@dataclass(frozen=True, slots=True)
class View:
    """Elements of a tensor in memory; strides are in elements and may be 0 (broadcast) or negative."""

    place: Place
    dtype: str
    dims: tuple[int, ...]
    strides: tuple[int, ...]

    @staticmethod
    def dense(place: Place, dtype: str, dims: Sequence[int]) -> View:
        """Row-major elements."""
        return View(place, dtype, tuple(dims), dense_strides(dims))

    @property
    def item_bytes(self) -> int:
        return DTYPE_BYTES[self.dtype]

    @property
    def numel(self) -> int:
        return product(self.dims)

    @property
    def c_type(self) -> str:
        return C_TYPES[self.dtype]

    @property
    def is_dense(self) -> bool:
        """Whether its elements are row-major without holes. Strides of axes of one element do not matter."""
        wanted = dense_strides(self.dims)
        pairs = zip(self.dims, self.strides, wanted, strict=True)
        return self.numel == 0 or all(dim == 1 or have == want for dim, have, want in pairs)

    def part(self, axis: int, start: int, length: int, step: int = 1) -> View:
        """`length` elements along an axis, from `start` on."""
        dims, strides = list(self.dims), list(self.strides)
        place = self.place.moved(start * strides[axis] * self.item_bytes)
        dims[axis], strides[axis] = length, strides[axis] * step
        return View(place, self.dtype, tuple(dims), tuple(strides))

    def permuted(self, axes: Sequence[int]) -> View:
        return replace(
            self, dims=tuple(self.dims[a] for a in axes), strides=tuple(self.strides[a] for a in axes)
        )

    def broadcast(self, dims: Sequence[int]) -> View:
        """The same elements under a larger shape, by the rules of numpy."""
        missing = len(dims) - len(self.dims)
        mine = (1,) * missing + self.dims
        steps = (0,) * missing + self.strides
        strides = tuple(
            0 if have == 1 and want != 1 else step for have, want, step in zip(mine, dims, steps, strict=True)
        )
        return replace(self, dims=tuple(dims), strides=strides)

    def reshaped(self, dims: Sequence[int]) -> View:
        """Row-major elements under another shape."""
        if not self.is_dense:
            raise LoweringError(
                f"a tensor of shape {list(self.dims)} with holes cannot be seen as {list(dims)}"
            )
        return View.dense(self.place, self.dtype, dims)


def dense_strides(dims: Sequence[int]) -> tuple[int, ...]:
    """Strides of a row-major tensor, in elements."""
    strides = [1] * len(dims)
    for axis in range(len(dims) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * dims[axis + 1]
    return tuple(strides)


def product(numbers: Sequence[int]) -> int:
    result = 1
    for number in numbers:
        result *= number
    return result


def joined_axes(dims: Sequence[int], strides: Sequence[Sequence[int]]) -> tuple[list[int], list[list[int]]]:
    """The fewest axes that visit the same elements of several tensors in the same order; at least one axis."""
    kept = [axis for axis, dim in enumerate(dims) if dim != 1]
    extents: list[int] = []
    steps: list[list[int]] = [[] for _ in strides]
    for axis in kept:
        fits = bool(extents) and all(
            mine[-1] == row[axis] * dims[axis] for mine, row in zip(steps, strides, strict=True)
        )
        if fits:
            extents[-1] *= dims[axis]
            for mine, row in zip(steps, strides, strict=True):
                mine[-1] = row[axis]
        else:
            extents.append(dims[axis])
            for mine, row in zip(steps, strides, strict=True):
                mine.append(row[axis])
    return (extents, steps) if extents else ([1], [[0] for _ in strides])
