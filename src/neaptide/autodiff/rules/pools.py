"""Derivatives of pools.

MaxPool remembers in at most one byte or two per window which element it took. Windows that lie side by side find it by
comparison, without the int64 indices of the operator, which are twice as large as its result.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Final

import numpy as np
import onnx_ir as ir

from neaptide.autodiff.call import Call, Rule
from neaptide.autodiff.emitter import INT64, Tensor
from neaptide.autodiff.rules.convolutions import transposed
from neaptide.autodiff.windows import Window, window_of

_COMPARED_ELEMENTS: Final = 9  # of a window: three nodes for each; larger windows take the indices


def _max_pool(c: Call) -> list[Tensor | None]:
    window = window_of(c)
    if window.is_tiling and math.prod(window.kernel) <= _COMPARED_ELEMENTS:
        return [_from_tiles(c, window)]
    return [_from_indices(c, window)]


def _from_tiles(c: Call, window: Window) -> Tensor:
    """Compares the result with each element of the windows; the first that is equal takes the adjoint."""
    rank = len(window.kernel)
    axes = list(range(2, 2 + rank))
    elements = list(itertools.product(*(range(k) for k in window.kernel)))
    with c.emitter.placing(after=c.node):
        code = c.emitter.constant(np.asarray(len(elements) - 1, dtype=np.uint8))
        for number, offset in reversed(list(enumerate(elements[:-1]))):
            ends = [o + (n - 1) * s + 1 for o, n, s in zip(offset, window.small, window.strides, strict=True)]
            element = c.a.slice(offset, ends, window.strides, axes)
            code = element.equal(c.y).where(number, code, like=code)
    apart: list[int] = list(itertools.chain.from_iterable((n, 1) for n in window.small))
    table = np.arange(len(elements), dtype=np.uint8)
    table = table.reshape([n for k in window.kernel for n in (1, k)])
    lead = c.a.shape[:2]
    mask = code.reshape([*lead, *apart]).equal(c.emitter.constant(table))
    spread = mask.where(c.g.reshape([*lead, *apart]), 0)
    covered = [n * k for n, k in zip(window.small, window.kernel, strict=True)]
    rest = [size - n for size, n in zip(window.large, covered, strict=True)]
    return spread.reshape([*lead, *covered]).pad([0] * (2 + rank), [0, 0, *rest])


def _from_indices(c: Call, window: Window) -> Tensor:
    """Keeps each index relative to its window, in the smallest integer that holds it."""
    if c.attribute("storage_order", 0):
        raise c.refusal("its indices are column-major")
    count, channels = c.a.shape[:2]
    rank, size = len(window.large), math.prod(window.large)
    pitches = [math.prod(window.large[axis + 1 :]) for axis in range(rank)]
    first = np.zeros((1, 1, *window.small), dtype=np.int64)
    for axis, (n, s, b) in enumerate(zip(window.small, window.strides, window.begins, strict=True)):
        along = (np.arange(n) * s - b) * pitches[axis]
        first += along.reshape([-1 if a == axis + 2 else 1 for a in range(rank + 2)])
    planes = (np.arange(count * channels) * size).reshape(count, channels, *[1] * rank)
    base, plane = c.emitter.constant(first), c.emitter.constant(planes)
    reach = sum((k - 1) * d * p for k, d, p in zip(window.kernel, window.dilations, pitches, strict=True))
    kind = _smallest(reach)
    with c.emitter.placing(after=c.node):
        code = (c.result(1, INT64) - plane - base).cast(kind)
    indices = (code.cast(INT64) + base + plane).reshape([-1])
    flat = c.emitter.zeros(c.a).reshape([-1])
    spread = flat.apply("ScatterElements", indices, c.g.reshape([-1]), axis=0, reduction="add")
    return spread.reshape_as(c.a)


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
