"""Convolutions, pools, matrix products and resizing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from neaptide.lower.c.code import float_text
from neaptide.lower.c.operators.movement import take, unit_axes
from neaptide.lower.c.operators.node_call import NodeCall, Row
from neaptide.lower.c.views import View, joined_axes


def two_spatial_axes(call: NodeCall, view: View) -> View:
    """The same elements with exactly two axes behind batch and channels."""
    if len(view.dims) == 3:
        dims, strides = view.dims, view.strides
        return replace(view, dims=(*dims[:2], 1, dims[2]), strides=(*strides[:2], 0, strides[2]))
    if len(view.dims) != 4:
        raise call.refusal(f"has {len(view.dims) - 2} spatial axes", "the C target takes 1 or 2")
    return view


def window_numbers(call: NodeCall, kernel: Sequence[int], *, transposed: bool = False) -> list[int]:
    """Strides, pads at the begin, dilations, and pads at the end: two each; of the one axis or of both."""
    rank = len(kernel)
    strides, dilations = call.integers("strides", [1] * rank), call.integers("dilations", [1] * rank)
    pads = call.integers("pads", [0] * (2 * rank))
    auto = call.text("auto_pad", "NOTSET")
    if auto == "VALID":
        pads = [0] * (2 * rank)
    elif auto != "NOTSET" or (transposed and "output_shape" in call.attributes):
        ins, outs = call.x().dims[2:], call.y().dims[2:]
        for axis, (size, stride, dilation) in enumerate(zip(kernel, strides, dilations, strict=True)):
            reach = (size - 1) * dilation + 1
            if transposed:
                extra = call.integers("output_padding", [0] * rank)[axis]
                total = stride * (ins[axis] - 1) + extra + reach - outs[axis]
            else:
                total = max(0, (-(-ins[axis] // stride) - 1) * stride + reach - ins[axis])
            less = total // 2
            first = total - less if (auto == "SAME_LOWER") != (transposed and auto == "NOTSET") else less
            pads[axis], pads[axis + rank] = first, total - first
    lead = [1] * (2 - rank), [0] * (2 - rank)
    return [*lead[0], *strides, *lead[1], *pads[:rank], *lead[0], *dilations, *lead[1], *pads[rank:]]


def conv_numbers(call: NodeCall, x: View, w: View, b: View | None, y: View, *, transposed: bool) -> list[int]:
    """The table that `nt_conv`, `nt_conv_transpose` and `nt_qconv` take."""
    rank = len(call.y().dims) - 2
    groups = call.integer("group", 1)
    outs = w.dims[1] if transposed else w.dims[0] // groups
    if x.dims[1] != (w.dims[0] if transposed else w.dims[1] * groups):
        raise call.refusal(f"reads {x.dims[1]} channels by filters of {w.dims}")
    window = window_numbers(call, w.dims[4 - rank :], transposed=transposed)
    return [
        *(x.dims[0], groups, outs, x.dims[1] // groups),
        *(*y.dims[2:], *x.dims[2:], *w.dims[2:]),
        *window[:6],
        *(*x.strides, *w.strides, b.strides[0] if b is not None else 0, *y.strides),
    ]


def _conv(call: NodeCall) -> None:
    transposed = call.op == "ConvTranspose"
    x, w, y = (two_spatial_axes(call, view) for view in (call.x(0), call.x(1), call.y()))
    b = call.x(2) if call.has(2) else None
    name = "conv_transpose" if transposed else "conv"
    call.code.kernel(name, **call.tokens(x))
    table = call.code.table(conv_numbers(call, x, w, b, y, transposed=transposed))
    bias = "0" if b is None else b.place.text
    places = x.place.text, w.place.text, bias, y.place.text
    call.code.call(f"nt_{name}_{call.tokens(x)['X']}", *places, table)


def _pool_numbers(call: NodeCall, x: View, y: View) -> list[int]:
    kernel = call.integers("kernel_shape")
    window = window_numbers(call, kernel)
    shape = [1] * (2 - len(kernel)) + kernel
    dims = *x.dims[:2], *y.dims[2:], *x.dims[2:], *shape
    return [*dims, *window[:4], *window[6:], *window[4:6], *x.strides, *y.strides]


def _max_pool(call: NodeCall) -> None:
    x, y = two_spatial_axes(call, call.x()), two_spatial_axes(call, call.y())
    if call.integer("storage_order"):
        raise call.refusal("has column-major indices")
    lowest = "-INFINITY" if x.dtype.startswith("float") else "0" if x.dtype == "uint8" else "INT8_MIN"
    call.code.kernel("max_pool", LOWEST=lowest, **call.tokens(x))
    at = f"(int64_t *)({call.y(1).place.text})" if call.has_result(1) else "0"
    table = call.code.table(_pool_numbers(call, x, y))
    call.code.call(f"nt_max_pool_{call.tokens(x)['X']}", x.place.text, y.place.text, at, table)


def _average_pool(call: NodeCall) -> None:
    x, y = two_spatial_axes(call, call.x()), two_spatial_axes(call, call.y())
    call.code.kernel("average_pool", **call.tokens(x))
    table = call.code.table([*_pool_numbers(call, x, y), call.integer("count_include_pad")])
    call.code.call(f"nt_average_pool_{call.tokens(x)['X']}", x.place.text, y.place.text, table)


def product_numbers(a: View, b: View, c: View | None, y: View) -> list[int]:
    """The table that `nt_matmul` and `nt_qmatmul` take; the last two axes are those of the matrices."""
    batch = y.dims[:-2]
    outer = []
    for view in (a, b):
        frame = View(view.place, view.dtype, view.dims[:-2], view.strides[:-2])
        outer.append(frame.broadcast(batch).strides)
    extents, steps = joined_axes(batch, [*outer, y.strides[:-2]])
    return [
        *(y.dims[-2], y.dims[-1], a.dims[-1]),
        *(*a.strides[-2:], *b.strides[-2:], *(c.strides if c is not None else (0, 0)), *y.strides[-2:]),
        *(len(extents), *extents, *(step for row in steps for step in row)),
    ]


def matrices(a: View, b: View, y: View) -> tuple[View, View, View]:
    """Operands of MatMul, where a vector stands for a row or a column."""
    if len(b.dims) == 1:
        b = replace(b, dims=(*b.dims, 1), strides=(*b.strides, 0))
        y = replace(y, dims=(*y.dims, 1), strides=(*y.strides, 0))
    if len(a.dims) == 1:
        a = replace(a, dims=(1, *a.dims), strides=(0, *a.strides))
        y = replace(y, dims=(*y.dims[:-1], 1, y.dims[-1]), strides=(*y.strides[:-1], 0, y.strides[-1]))
    return a, b, y


def _matmul(call: NodeCall) -> None:
    _product(call, *matrices(call.x(0), call.x(1), call.y()), None, 1.0, 0.0)


def _gemm(call: NodeCall) -> None:
    a, b, y = call.x(0), call.x(1), call.y()
    a = a.permuted((1, 0)) if call.integer("transA") else a
    b = b.permuted((1, 0)) if call.integer("transB") else b
    c = call.x(2).broadcast(y.dims) if call.has(2) else None
    _product(call, a, b, y, c, call.number("alpha", 1.0), call.number("beta", 1.0))


def _product(call: NodeCall, a: View, b: View, y: View, c: View | None, alpha: float, beta: float) -> None:
    if y.numel == 0:
        return
    call.code.kernel("matmul", **call.tokens(y))
    table = call.code.table(product_numbers(a, b, c, y))
    added = "0" if c is None else c.place.text
    numbers = float_text(alpha), float_text(beta)
    call.code.call(
        f"nt_matmul_{call.tokens(y)['X']}", a.place.text, b.place.text, added, y.place.text, table, *numbers
    )


def _resize(call: NodeCall) -> None:
    x, y = call.x(), call.y()
    scales = _scales(call)
    mode = call.text("mode", "nearest")
    if call.text("coordinate_transformation_mode") == "tf_crop_and_resize" or call.integer("antialias"):
        raise call.refusal("crops or has antialiasing")
    axes = list(zip(x.dims, y.dims, scales, strict=True))
    if mode == "nearest":
        take(call, [_nearest(call, *axis) for axis in axes])
        return
    if mode != "linear" or len(axes) != 4 or x.dims[:2] != y.dims[:2]:
        raise call.refusal(
            f"has mode {mode} over {len(axes)} axes", "the C target takes nearest, and linear of images"
        )
    x, y = unit_axes(x), unit_axes(y)
    pairs, weights = [], []
    for n, m, scale in axes[2:]:
        for position in range(m):
            at = min(max(_source(call, position, n, m, scale), 0.0), n - 1.0)
            low = math.floor(at)
            pairs += [low, min(low + 1, n - 1)]
            weights.append(at - low)
    call.code.kernel("interpolate", **call.tokens(x))
    table = call.code.table([*y.dims, *x.strides, *y.strides, *pairs])
    places = x.place.text, y.place.text
    call.code.call(f"nt_interpolate_{call.tokens(x)['X']}", *places, table, call.code.floats(weights))


def _scales(call: NodeCall) -> list[float]:
    found = _stated_scales(call)
    if not all(0 < scale < math.inf for scale in found):
        raise call.refusal(f"has the scales {found}", "sizes are multiplied by numbers above 0")
    return found


def _stated_scales(call: NodeCall) -> list[float]:
    x, y = call.x(), call.y()
    position = 1 if call.version < 11 else 2
    if call.op == "Upsample" and call.version < 9:
        return [float(scale) for scale in call.attributes["scales"]]
    known = call.known(position)
    if known is None or not known.size:
        return [m / n for n, m in zip(x.dims, y.dims, strict=True)]
    found = [float(scale) for scale in known.reshape(-1).tolist()]
    axes = call.integers("axes", range(len(x.dims)))
    by_axis = dict(zip(axes, found, strict=True))
    return [by_axis.get(axis, 1.0) for axis in range(len(x.dims))]


def _source(call: NodeCall, position: int, n: int, m: int, scale: float) -> float:
    """The coordinate of the input that a place of the output is looked up at."""
    mode = call.text("coordinate_transformation_mode", "half_pixel" if call.version >= 11 else "asymmetric")
    if mode == "asymmetric":
        return position / scale
    if mode == "align_corners":
        return position * (n - 1) / (m - 1) if m > 1 else 0.0
    if mode == "pytorch_half_pixel" and m == 1:
        return 0.0
    if mode == "half_pixel_symmetric":
        return n / 2 * (1 - m / (n * scale)) + (position + 0.5) / scale - 0.5
    return (position + 0.5) / scale - 0.5


def _nearest(call: NodeCall, n: int, m: int, scale: float) -> list[int]:
    if n == m and scale == 1:
        return list(range(n))
    default = "round_prefer_floor" if call.version >= 11 else "floor"
    mode = call.text("nearest_mode", default)
    found = []
    for position in range(m):
        at = _source(call, position, n, m, scale)
        rounded = {
            "floor": math.floor(at),
            "ceil": math.ceil(at),
            "round_prefer_ceil": math.floor(at + 0.5),
        }.get(mode, math.ceil(at - 0.5))
        found.append(min(max(rounded, 0), n - 1))
    return found


ROWS: Final[dict[str, Row]] = {
    "Conv": Row(_conv),
    "ConvTranspose": Row(_conv),
    "MaxPool": Row(_max_pool),
    "AveragePool": Row(_average_pool),
    "MatMul": Row(_matmul),
    "Gemm": Row(_gemm),
    "Resize": Row(_resize),
    "Upsample": Row(_resize),
}
