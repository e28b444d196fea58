"""Axes of pools, padding and resampling."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from neaptide.ir.axes import Need, OpAxis, Window
from neaptide.ir.registry import AxisRow, Call
from neaptide.ir.values import Value
from neaptide.ops.axes.forms import Axed, along, numbers, op_axis, operand, padding_at, slot
from neaptide.symbolic.size_expr import SizeExpr

_ONE = SizeExpr.const(1)


def _batch_of_images(call: Call) -> Iterator[OpAxis]:
    """Dim 0 of images (n, c, h, w), and of all operands beside them."""
    if len(call.inputs()[0].shape) == 4:
        yield from along(call, (0,), range(len(call.node.inputs)))


def _outer_dims(spatial: int, *positions: int, linear: bool = True) -> AxisRow:
    """Batch and channels, in front of so many spatial dims that are needed whole; `linear` in the first operand."""

    def axes(call: Call) -> Iterator[OpAxis]:
        here = [s for p in positions if (s := slot(call, p)) is not None]
        yield from along(call, range(len(call.output().shape) - spatial), here)

    return AxisRow(axes, linear=((0,),) if linear else ())


def _affine_grid(call: Call) -> Iterator[OpAxis]:
    """`(theta, size, align_corners)`: a grid for each matrix; the size holds their number."""
    yield from op_axis(call, [(0, 0)], [(0, 0)], sizes=((1, 0),))


def _max_pool(call: Call) -> Iterator[OpAxis]:
    """`(self, kernel_size, stride, padding, dilation, ceil_mode)` to the result and places counted within its input."""
    yield from along(call, range(len(call.output().shape) - 2), (0,))
    for dim, window, tiles in _pool_windows(call, 0, 1, call.output()):
        needs = () if tiles else (Need.HALO,)
        yield from op_axis(call, [(0, dim)], [(0, dim), (1, dim)], *needs, window=window, private=(1,))


def _max_pool_backward(call: Call) -> Iterator[OpAxis]:
    """`(grad_output, self, kernel_size, stride, padding, dilation, ceil_mode, indices)`."""
    grad, given, indices = slot(call, 0), slot(call, 1), slot(call, 7)
    if grad is None or given is None or indices is None:
        return
    yield from along(call, range(len(call.output().shape) - 2), (grad, given, indices))
    for dim, window, tiles in _pool_windows(call, given, 2, operand(call, grad)):
        here = [(grad, dim), (given, dim), (indices, dim)]
        own = (indices,) if tiles else ()
        yield from op_axis(call, here, [(0, dim)], window=window, whole=not tiles, own=own)


def _pool_windows(call: Call, given: int, first: int, made: Value) -> Iterator[tuple[int, Window, bool]]:
    """Height and width with how a maximum pool reads them, and whether its windows tile the input.

    Arguments from the position `first` on: (kernel, stride, padding, dilation, ceil_mode). Padding is below all numbers.
    """
    kernel = numbers(call.arg(first))
    if not kernel:
        return
    stride = numbers(call.arg(first + 1, "stride", ())) or kernel
    padding = numbers(call.arg(first + 2, "padding", (0,)))
    dilation = numbers(call.arg(first + 3, "dilation", (1,)))
    if padding is None or dilation is None or call.arg(first + 4, "ceil_mode", default=False) is not False:
        return
    rank = len(made.shape)
    for k in range(2):
        size, step, before, apart = (found[k % len(found)] for found in (kernel, stride, padding, dilation))
        dim = rank - 2 + k
        where = padding_at(call, first + 2, k, 2)
        window = Window(size, step, apart, before, (given,), fill=-math.inf, padding=where)
        yield dim, window, _tiles(window, operand(call, given), made, dim)


def _tiles(window: Window, given: Value, made: Value, dim: int) -> bool:
    """Whether windows neither overlap nor skip, and end where the operand ends."""
    return window.halo == 0 and window.before == 0 and given.shape[dim] == made.shape[dim] * window.stride


def _average_pool(call: Call) -> Iterator[OpAxis]:
    """`(self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)`.

    Padding is zero and counts. Where it does not, or where windows end after it, the divisor is another at the border.
    """
    rank = len(call.output().shape)
    for dim in range(rank - 2):
        yield from op_axis(call, [(0, dim)], [(0, dim)])
    kernel, padding = numbers(call.arg(1)), numbers(call.arg(3, "padding", (0,)))
    if not kernel or padding is None or call.arg(4, "ceil_mode", default=False) is not False:
        return
    counts = call.arg(5, "count_include_pad", default=True) is True
    counts = counts or call.arg(6, "divisor_override") is not None
    stride = numbers(call.arg(2, "stride", ())) or kernel
    for k, dim in enumerate((rank - 2, rank - 1)):
        size, step, before = (found[k % len(found)] for found in (kernel, stride, padding))
        if before and not counts:
            continue
        window = Window(size, step, 1, before, padding=padding_at(call, 3, k, 2))
        needs = () if _tiles(window, call.inputs()[0], call.output(), dim) else (Need.HALO,)
        yield from op_axis(call, [(0, dim)], [(0, dim)], *needs, window=window)


def _nearest(call: Call) -> Iterator[OpAxis]:
    """`(self, output_size, scale of height, of width)`: each element a whole number of times along height and width.

    Which element is the nearest is worked out with rounded numbers. Powers of two, and only they, round nowhere.
    """
    rank = len(call.output().shape)
    for dim in range(rank - 2):
        yield from op_axis(call, [(0, dim)], [(0, dim)])
    sizes = numbers(call.arg(1))
    if rank != 4 or sizes is None or len(sizes) != 2:
        return
    for k, dim in enumerate((rank - 2, rank - 1)):
        given, made = (value.shape[dim] for value in (call.inputs()[0], call.output()))
        times = (made // given).constant_value()
        scale = call.arg(2 + k, "scales_h" if k == 0 else "scales_w")
        if given * times == made and times.bit_count() == 1 and scale in (None, float(times)):
            window = Window(1, times, inverse=True)
            yield from op_axis(call, [(0, dim)], [(0, dim)], sizes=((1, k),), window=window)


def _padded(call: Call) -> Iterator[OpAxis]:
    """`(self, pad, value)`: dims that are padded, from the last one on in pairs of before and after, and all others."""
    rank, pad, fill = len(call.output().shape), numbers(call.arg(1, "pad")), call.arg(2, "value", 0)
    if pad is None:
        return
    for dim in range(rank):
        at = 2 * (rank - 1 - dim)
        if at >= len(pad) or pad[at] == pad[at + 1] == 0:
            yield from op_axis(call, [(0, dim)], [(0, dim)])
        elif isinstance(fill, int | float):
            window = Window(1, 1, 1, pad[at], fill=float(fill), padding=((1, at), (1, at + 1)))
            yield from op_axis(call, [(0, dim)], [(0, dim)], Need.HALO, window=window)


ROWS: Final = (
    Axed("max_pool2d_with_indices", AxisRow(_max_pool)),
    Axed("max_pool2d_with_indices_backward", AxisRow(_max_pool_backward, linear=((0,),))),
    Axed("avg_pool2d", AxisRow(_average_pool, linear=((0,),))),
    Axed("avg_pool2d_backward", _outer_dims(2, 0, 1)),
    Axed("max_pool3d_with_indices adaptive_max_pool3d", _outer_dims(3, 0, linear=False)),
    Axed("max_pool3d_with_indices_backward", _outer_dims(3, 0, 1, 7)),
    Axed("adaptive_max_pool2d", _outer_dims(2, 0, linear=False)),
    Axed("adaptive_max_pool2d_backward", _outer_dims(2, 0, 1, 2)),
    Axed("avg_pool3d _adaptive_avg_pool3d", _outer_dims(3, 0)),
    Axed("avg_pool3d_backward", _outer_dims(3, 0, 1)),
    Axed("reflection_pad1d replication_pad1d", _outer_dims(1, 0)),
    Axed("reflection_pad2d replication_pad2d pixel_shuffle", AxisRow(_batch_of_images)),
    Axed("im2col grid_sampler_2d grid_sampler_2d_backward pixel_unshuffle", AxisRow(_batch_of_images)),
    Axed("affine_grid_generator", AxisRow(_affine_grid)),
    Axed("col2im", _outer_dims(3, 0)),
    Axed("reflection_pad1d_backward", _outer_dims(1, 0, 1)),
    Axed("max_unpool2d", _outer_dims(2, 0, 1)),
    Axed("_adaptive_avg_pool2d", _outer_dims(2, 0)),
    Axed("_adaptive_avg_pool2d_backward", _outer_dims(2, 0, 1)),
    Axed("upsample_nearest1d,vec", _outer_dims(1, 0)),
    Axed("upsample_nearest2d", AxisRow(_nearest, linear=((0,),))),
    Axed("upsample_nearest2d.vec upsample_bilinear2d,vec upsample_bicubic2d,vec", _outer_dims(2, 0)),
    Axed("constant_pad_nd", AxisRow(_padded)),
    Axed(
        "upsample_nearest2d_backward upsample_bilinear2d_backward upsample_bicubic2d_backward",
        _outer_dims(2, 0),
        shapes=(2,),
    ),
)
