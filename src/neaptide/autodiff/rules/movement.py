"""Derivatives of operators that move elements: views, joins, cuts, padding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from neaptide.autodiff.call import Call, Rule
from neaptide.autodiff.emitter import Tensor


def _reshaped(c: Call) -> list[Tensor | None]:
    return [c.g.reshape_as(c.a)]


def _transpose(c: Call) -> list[Tensor | None]:
    order = c.attribute("perm") or list(reversed(range(len(c.a.dims))))
    return [c.g.apply("Transpose", perm=[order.index(axis) for axis in range(len(order))])]


def _expand(c: Call) -> list[Tensor | None]:
    return [c.reduced(c.g.apply("Identity"), c.a)]


def _tile(c: Call) -> list[Tensor | None]:
    pairs = zip(c.y.shape, c.a.shape, strict=True)
    apart = c.g.reshape([n for whole, size in pairs for n in (whole // size, size)])
    return [apart.sum(range(0, 2 * len(c.a.shape), 2), keep=False)]


def _concat(c: Call) -> list[Tensor | None]:
    """One cut per input: each can die on its own, where one Split would make them all at once."""
    axis = c.attribute("axis") % len(c.y.dims)
    found: list[Tensor | None] = []
    start = 0
    for index, wanted in enumerate(c.wanted):
        end = start + c.input(index).shape[axis]
        found.append(c.g.slice([start], [end], [1], [axis]) if wanted else None)
        start = end
    return found


def _split(c: Call) -> list[Tensor | None]:
    pairs = zip(c.adjoints, c.node.outputs, strict=True)
    parts = [g or c.emitter.zeros(c.emitter.tensor(value)) for g, value in pairs]
    return [parts[0].apply("Concat", *parts[1:], axis=c.attribute("axis", 0))]


def _slice(c: Call) -> list[Tensor | None]:
    """Elements between those that were read are zero."""
    shape = list(c.a.shape)
    starts, ends = c.ints(1), c.ints(2)
    assert starts is not None
    assert ends is not None
    axes, steps = c.ints(3) or list(range(len(starts))), c.ints(4) or [1] * len(starts)
    g, sizes = c.g, list(c.y.shape)
    begins, after = [0] * len(shape), [0] * len(shape)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        at = axis % len(shape)
        read = range(*slice(start, end, step).indices(shape[at]))
        if not read:
            return [c.emitter.zeros(c.a)]
        if step < 0:
            g, read = g.slice([-1], [-shape[at] - 1], [-1], [at]), read[::-1]
        if read.step > 1:
            g, sizes = _spread(g, sizes, at, read.step)
        begins[at], after[at] = read[0], shape[at] - read[0] - sizes[at]
    if min(after) < 0:
        sizes = [size + min(0, n) for size, n in zip(sizes, after, strict=True)]
        g = g.slice([0] * len(sizes), sizes, [1] * len(sizes), range(len(sizes)))
    return [g.pad(begins, [max(0, n) for n in after])]


def _spread(g: Tensor, sizes: list[int], axis: int, step: int) -> tuple[Tensor, list[int]]:
    """A tensor with `step - 1` zeros after each element along an axis, and its sizes."""
    apart = g.reshape([*sizes[: axis + 1], 1, *sizes[axis + 1 :]])
    zeros = [0] * (len(sizes) + 1)
    wide = [step - 1 if i == axis + 1 else 0 for i in range(len(zeros))]
    spread = [*sizes[:axis], sizes[axis] * step, *sizes[axis + 1 :]]
    return apart.pad(zeros, wide).reshape(spread), spread


def _pad(c: Call) -> list[Tensor | None]:
    pads, rank = c.ints(1), len(c.a.dims)
    assert pads is not None
    if c.attribute("mode", "constant") != "constant" and any(pads):
        raise c.refusal("its mode copies elements into the padding")
    axes = c.ints(3) or list(range(rank))
    begins, ends = [0] * rank, [0] * rank
    for axis, begin, end in zip(axes, pads[: len(axes)], pads[len(axes) :], strict=True):
        begins[axis], ends[axis] = begin, end
    g = c.g
    if max(pads) > 0:
        stops = [size - max(0, end) for size, end in zip(c.y.shape, ends, strict=True)]
        g = g.slice([max(0, b) for b in begins], stops, [1] * rank, range(rank))
    return [g.pad([max(0, -b) for b in begins], [max(0, -e) for e in ends])]


def _trilu(c: Call) -> list[Tensor | None]:
    return [c.g.apply("Trilu", c.optional(1), upper=c.attribute("upper", 1))]


def _moved(c: Call, apart: Sequence[int], order: Sequence[int]) -> list[Tensor | None]:
    return [c.g.reshape(apart).permute(order, apart).reshape_as(c.a)]


def _depth_to_space(c: Call) -> list[Tensor | None]:
    block, (n, channels, height, width) = c.attribute("blocksize"), c.y.shape
    apart = [n, channels, height // block, block, width // block, block]
    column_first = c.attribute("mode", "DCR") == "CRD"
    return _moved(c, apart, [0, 1, 3, 5, 2, 4] if column_first else [0, 3, 5, 1, 2, 4])


def _space_to_depth(c: Call) -> list[Tensor | None]:
    block, (n, channels, height, width) = c.attribute("blocksize"), c.a.shape
    within = [height // block, width // block]
    if c.attribute("mode", "DCR") == "CRD":
        return _moved(c, [n, channels, block, block, *within], [0, 1, 4, 2, 5, 3])
    return _moved(c, [n, block, block, channels, *within], [0, 3, 4, 1, 5, 2])


def _resize(c: Call) -> list[Tensor | None]:
    """Nearest neighbour by whole factors: each element is copied to a block."""
    forms = {("half_pixel", "round_prefer_floor"), ("asymmetric", "floor")}
    form = (
        c.attribute("coordinate_transformation_mode", "half_pixel"),
        c.attribute("nearest_mode", "round_prefer_floor"),
    )
    factors = [large // small for large, small in zip(c.y.shape, c.a.shape, strict=True)]
    whole = all(f * small == large for f, small, large in zip(factors, c.a.shape, c.y.shape, strict=True))
    if c.attribute("mode", "nearest") != "nearest" or form not in forms or not whole:
        raise c.refusal("only copies of elements to whole blocks (mode nearest) have a rule")
    apart = [n for small, f in zip(c.a.shape, factors, strict=True) for n in (small, f)]
    return [c.g.reshape(apart).sum([2 * i + 1 for i, f in enumerate(factors) if f > 1]).reshape_as(c.a)]


RULES: Final[Mapping[str, Rule]] = {
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze"), _reshaped),
    "Transpose": _transpose,
    "Expand": _expand,
    "Tile": _tile,
    "Concat": _concat,
    "Split": _split,
    "Slice": _slice,
    "Pad": _pad,
    "Trilu": _trilu,
    "DepthToSpace": _depth_to_space,
    "SpaceToDepth": _space_to_depth,
    "Resize": _resize,
}
