"""Operators that move elements: most are one strided copy."""

from __future__ import annotations

from typing import Final, Literal, cast

import numpy as np

from neaptide.lower.c.code import element_wise
from neaptide.lower.c.operators.elementwise import fill
from neaptide.lower.c.operators.node_call import NodeCall, Row
from neaptide.lower.c.views import View


def slice_views(call: NodeCall) -> list[View]:
    """The window of Slice."""
    view = call.x()
    rank = len(view.dims)
    if call.version < 10:
        starts, ends = call.integers("starts"), call.integers("ends")
        axes = call.integers("axes", range(len(starts)))
    else:
        starts, ends = call.known_integers(1) or [], call.known_integers(2) or []
        axes = call.known_integers(3) or list(range(len(starts)))
    steps = call.known_integers(4) or [1] * len(starts)
    for start, end, given, step in zip(starts, ends, axes, steps, strict=True):
        axis = given + rank if given < 0 else given
        first, last, stride = slice(start, end, step).indices(view.dims[axis])
        view = view.part(axis, first, max(0, -((first - last) // stride)), stride)
    return [view]


def split_views(call: NodeCall) -> list[View]:
    """The windows of Split."""
    view = call.x()
    axis = call.axis()
    lengths = call.integers("split") or call.known_integers(1)
    if lengths is None:
        count = call.integer("num_outputs", len(call.results))
        size = -(-view.dims[axis] // count)
        lengths = [min(size, view.dims[axis] - k * size) for k in range(count)]
    found, start = [], 0
    for length in lengths:
        found.append(view.part(axis, start, length))
        start += length
    return found


def _copy_views(call: NodeCall) -> None:
    views = slice_views(call) if call.op == "Slice" else split_views(call)
    for view, result in zip(views, call.results, strict=False):
        if result is not None:
            call.copy(view, result)


def concat_parts(call: NodeCall) -> list[View]:
    """Where the operands of Concat go in its result."""
    result = call.y()
    axis = call.axis(rank=len(result.dims))
    parts, start = [], 0
    for operand in call.operands:
        assert operand is not None
        parts.append(result.part(axis, start, operand.dims[axis]))
        start += operand.dims[axis]
    return parts


def _concat(call: NodeCall) -> None:
    for operand, part in zip(call.operands, concat_parts(call), strict=True):
        assert operand is not None
        call.copy(operand, part)


def _transpose(call: NodeCall) -> None:
    rank = len(call.x().dims)
    call.copy(call.x().permuted(call.integers("perm", range(rank - 1, -1, -1))), call.y())


def _expand(call: NodeCall) -> None:
    call.copy(call.x().broadcast(call.y().dims), call.y())


def _reshaped(call: NodeCall) -> None:
    """A view that got bytes of its own."""
    call.copy(call.x().reshaped(call.y().dims), call.y())


def _tile(call: NodeCall) -> None:
    x, y = call.x(), call.y()
    times = call.known_integers(1) or []
    extents = [size for pair in zip(times, x.dims, strict=True) for size in pair]
    source = View(x.place, x.dtype, tuple(extents), tuple(s for step in x.strides for s in (0, step)))
    rows = [part for dim, step in zip(x.dims, y.strides, strict=True) for part in (dim * step, step)]
    call.copy(source, View(y.place, y.dtype, tuple(extents), tuple(rows)))


def _depth_to_space(call: NodeCall) -> None:
    x, y = call.x(), call.y()
    n, c, h, w = x.dims
    size, is_crd = call.integer("blocksize"), call.text("mode", "DCR") == "CRD"
    if call.op == "SpaceToDepth":
        seen = _blocks(x, size)  # n, c, h, size, w, size
        channels, moved = (c, size, size), (1, 3, 5)
        if not is_crd:
            channels, moved = (size, size, c), (3, 5, 1)
        into = y.reshaped((n, *channels, h // size, w // size))
        call.copy(seen.permuted((0, *moved, 2, 4)), into)
        return
    depth = c // (size * size)
    from_shape = (n, depth, size, size, h, w) if is_crd else (n, size, size, depth, h, w)
    order = (0, 1, 4, 2, 5, 3) if is_crd else (0, 3, 4, 1, 5, 2)
    call.copy(x.reshaped(from_shape).permuted(order), _blocks(y, size))


def _blocks(view: View, size: int) -> View:
    n, c, h, w = view.dims
    sn, sc, sh, sw = view.strides
    dims = (n, c, h // size, size, w // size, size)
    return View(view.place, view.dtype, dims, (sn, sc, sh * size, sh, sw * size, sw))


def _pad(call: NodeCall) -> None:
    x, y = call.x(), call.y()
    rank = len(x.dims)
    before, after = [0] * rank, [0] * rank
    pads = call.integers("pads") if call.version < 11 else call.known_integers(1) or []
    axes = call.known_integers(3) if call.has(3) else None
    for at, axis in enumerate(range(rank) if axes is None else axes):
        before[axis], after[axis] = pads[at], pads[at + len(pads) // 2]
    mode = call.text("mode", "constant")
    if mode != "constant":
        rows = zip(x.dims, before, after, strict=True)
        take(call, [_border(dim, first, last, mode) for dim, first, last in rows])
        return
    inner, source = y, x
    for axis, (first, last) in enumerate(zip(before, after, strict=True)):
        inner = inner.part(axis, max(first, 0), x.dims[axis] + min(first, 0) + min(last, 0))
        source = source.part(axis, max(-first, 0), inner.dims[axis])
    if any(amount > 0 for amount in (*before, *after)):
        if call.version >= 11 and call.has(2):
            element_wise(call.code, "copy", "a", [call.x(2).reshaped(())], y)
        else:
            fill(call, call.number("value"), y)
    call.copy(source, inner)


def _border(dim: int, before: int, after: int, mode: str) -> list[int]:
    """Elements of a dim, the padded ones by their copies; `mode` is one of ONNX that copies."""
    padded = np.pad(np.arange(dim), (before, after), cast('Literal["edge", "reflect", "wrap"]', mode))
    return [int(index) for index in padded]


def take(call: NodeCall, tables: list[list[int]]) -> None:
    """Elements of operand 0 at places given by axis; four axes at most."""
    x, y = call.x(), call.y()
    missing = 4 - len(x.dims)
    if missing < 0:
        raise call.refusal(f"over {len(x.dims)} axes", "the most are 4")
    call.code.kernel("take", **call.tokens(x))
    numbers = [*(1,) * missing, *y.dims, *(0,) * missing, *x.strides, *(0,) * missing, *y.strides]
    rows = [number for table in tables for number in table]
    table = call.code.table([*numbers, *(0,) * missing, *rows])
    call.code.call(f"nt_take_{call.tokens(x)['X']}", x.place.text, y.place.text, table)


def _nothing(call: NodeCall) -> None:
    raise call.refusal("is a constant that was not folded")


def unit_axes(view: View) -> View:
    """The same elements under exactly four axes, with leading ones."""
    missing = 4 - len(view.dims)
    return View(view.place, view.dtype, (1,) * missing + view.dims, (0,) * missing + view.strides)


ROWS: Final[dict[str, Row]] = {
    "Slice": Row(_copy_views, views=slice_views),
    "Split": Row(_copy_views, views=split_views),
    "Concat": Row(_concat, parts=concat_parts),
    "Transpose": Row(_transpose),
    "Expand": Row(_expand),
    "Tile": Row(_tile),
    "Pad": Row(_pad),
    "DepthToSpace": Row(_depth_to_space, dense=True),
    "SpaceToDepth": Row(_depth_to_space, dense=True),
    **{name: Row(_reshaped, dense=True) for name in ("Reshape", "Flatten", "Squeeze", "Unsqueeze")},
    "ConstantOfShape": Row(_nothing),
    "Shape": Row(_nothing),
}
