"""Derivatives of pools.

MaxPool remembers in at most one byte or two per window which element it took. Windows that lie side by side find it by
comparison, without the int64 indices of the operator, which are twice as large as its result.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import onnx_ir as ir

from neaptide.autodiff.call import Call, Rule
from neaptide.autodiff.emitter import INT64, Tensor
from neaptide.autodiff.rules.convolutions import transposed
from neaptide.autodiff.windows import Window, window_of

_COMPARED_ELEMENTS: Final = (
    9  # of a window: three nodes for each; larger windows take the indices of the operator
)


def _max_pool(c: Call) -> list[Tensor | None]:
    window = window_of(c)
    if not window.is_tiling or any(window.ends):
        return [_scattered(c, *_relative_indices(c, window))]
    if math.prod(window.kernel) <= _COMPARED_ELEMENTS:
        return [_tiled(c, window, _compared(c, window), np.arange(math.prod(window.kernel), dtype=np.uint8))]
    code, _ = _relative_indices(c, window)
    table = np.asarray(
        [_distance(window, element) for element in _elements(window)], dtype=code.dtype.numpy()
    )
    return [_tiled(c, window, code, table)]


def _elements(window: Window) -> list[tuple[int, ...]]:
    return list(itertools.product(*(range(k) for k in window.kernel)))


def _distance(window: Window, element: Sequence[int]) -> int:
    """Of an element from the first of its window, in the whole plane."""
    return sum(e * d * p for e, d, p in zip(element, window.dilations, _pitches(window), strict=True))


def _pitches(window: Window) -> list[int]:
    return [math.prod(window.large[axis + 1 :]) for axis in range(len(window.large))]


def _compared(c: Call, window: Window) -> Tensor:
    """The number of the first element of each window that is equal to the result."""
    axes = list(range(2, 2 + len(window.kernel)))
    elements = _elements(window)
    with c.emitter.placing(after=c.node):
        code = c.emitter.constant(np.asarray(len(elements) - 1, dtype=np.uint8))
        for number, offset in reversed(list(enumerate(elements[:-1]))):
            ends = [o + (n - 1) * s + 1 for o, n, s in zip(offset, window.small, window.strides, strict=True)]
            element = c.a.slice(offset, ends, window.strides, axes)
            code = element.equal(c.y).where(number, code, like=code)
    return code


def _tiled(c: Call, window: Window, code: Tensor, table: np.ndarray) -> Tensor:
    """The adjoint where an element's code in the table is that of its window, else zero."""
    apart: list[int] = list(itertools.chain.from_iterable((n, 1) for n in window.small))
    codes = table.reshape([n for k in window.kernel for n in (1, k)])
    lead = c.a.shape[:2]
    mask = code.reshape([*lead, *apart]).equal(c.emitter.constant(codes))
    spread = mask.where(c.g.reshape([*lead, *apart]), 0)
    return spread.reshape_as(c.a)


def _relative_indices(c: Call, window: Window) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Each index relative to its window, in the smallest integer that holds it; and what restores it: two summands."""
    if c.attribute("storage_order", 0):
        raise c.refusal("its indices are column-major")
    (count, channels), rank = c.a.shape[:2], len(window.large)
    first = np.zeros((1, 1, *window.small), dtype=np.int64)
    rows = zip(window.small, window.strides, window.begins, _pitches(window), strict=True)
    for axis, (n, s, b, pitch) in enumerate(rows, 2):
        first += ((np.arange(n) * s - b) * pitch).reshape([-1 if a == axis else 1 for a in range(rank + 2)])
    planes = np.arange(count * channels) * math.prod(window.large)
    base = c.emitter.constant(first), c.emitter.constant(planes.reshape(count, channels, *[1] * rank))
    kind = _smallest(_distance(window, [k - 1 for k in window.kernel]))
    with c.emitter.placing(after=c.node):
        return (c.result(1, INT64) - base[1] - base[0]).cast(kind), base


def _scattered(c: Call, code: Tensor, base: tuple[Tensor, Tensor]) -> Tensor:
    """Adds to zeros that are made at each run: constant ones would be a weight as large as the adjoint."""
    indices, g = (code.cast(INT64) + base[0] + base[1]).reshape([-1]), c.g.reshape([-1])
    never = c.emitter.constant(np.asarray(False))
    zero = never.where(g.slice([0], [1], [1], [0]), 0)
    zeros = zero.apply("Expand", c.emitter.ints([math.prod(c.a.shape)]))
    return zeros.apply("ScatterElements", indices, g, axis=0, reduction="add").reshape_as(c.a)


def _smallest(most: int) -> ir.DataType:
    if most < 2**8:
        return ir.DataType.UINT8
    return ir.DataType.UINT16 if most < 2**16 else ir.DataType.INT32


def _average_pool(c: Call) -> list[Tensor | None]:
    window = window_of(c)
    channels = c.a.shape[1]
    counts = _counts(c, window)
    share = c.g * (1 / float(counts.flat[0])) if counts.min() == counts.max() else c.g / _as(c, counts)
    ones = _as(c, np.ones((channels, 1, *window.kernel)))
    return [transposed(share, ones, window, channels)]


def _as(c: Call, array: np.ndarray) -> Tensor:
    return c.emitter.constant(array.astype(c.a.dtype.numpy()))


def _counts(c: Call, window: Window) -> np.ndarray:
    """How many elements each window averages, (1, 1, small): padding counts only if the attribute says so."""
    explicit = c.attribute("pads", [0] * 2 * len(window.large))[len(window.large) :]
    with_padding = c.attribute("count_include_pad", 0)
    counts = np.ones((1, 1))
    rows = zip(
        window.large,
        window.small,
        window.kernel,
        window.strides,
        window.dilations,
        window.begins,
        explicit,
        strict=True,
    )
    for size, number, kernel, stride, dilation, begin, end in rows:
        low, high = (-begin, size + end) if with_padding else (0, size)
        places = (np.arange(number) * stride - begin)[:, None] + np.arange(kernel) * dilation
        along = ((places >= low) & (places < high)).sum(axis=1)
        counts = counts[..., None] * along
    return counts


RULES: Final[Mapping[str, Rule]] = {"MaxPool": _max_pool, "AveragePool": _average_pool}
