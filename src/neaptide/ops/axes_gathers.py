"""Axes of indexing, pools and resampling."""

from __future__ import annotations

from collections.abc import Iterator

from neaptide.ir.axes import Merge, Need, OpAxis, Window
from neaptide.ir.nodes import Arg, Ref
from neaptide.ir.registry import AxisRow, Call
from neaptide.ir.values import Value
from neaptide.ops.axes_forms import Axed, broadcast_dim, dim_of, numbers, op_axis, operand, same_dims, slot
from neaptide.symbolic.size_expr import SizeExpr

_ONE = SizeExpr.const(1)


def _embedding(call: Call) -> Iterator[OpAxis]:
    """`(weight (words, width), indices)`: every index picks a row."""
    indices = slot(call, 1)
    assert indices is not None
    rank = len(operand(call, indices).shape)
    for dim in range(rank):
        yield from op_axis(call, [(indices, dim)], [(0, dim)])
    yield from op_axis(call, [(slot(call, 0), 1)], [(0, rank)])


def _embedding_backward(call: Call) -> Iterator[OpAxis]:
    """`(grad_output, indices, num_weights, padding_idx, scale_grad_by_freq)`: rows are added up."""
    grad, indices = slot(call, 0), slot(call, 1)
    assert indices is not None
    rank = len(operand(call, indices).shape)
    if call.arg(4) is False:
        for dim in range(rank):
            yield from op_axis(call, [(grad, dim), (indices, dim)], [(0, Merge.SUM)])
    yield from op_axis(call, [(grad, rank)], [(0, 1)])


def _index(call: Call) -> Iterator[OpAxis]:
    """`(self, indices)`: dims that are not indexed stay, those of the indices stand in their place."""
    found = call.arg(1)
    if isinstance(found, tuple):
        yield from _index_axes(call, found, call.output().shape)


def _index_axes(call: Call, found: tuple[Arg, ...], picked: tuple[SizeExpr, ...]) -> Iterator[OpAxis]:
    """Axes of picking elements of operand 0, whose result has a shape."""
    value = call.inputs()[0]
    indexed = [(dim, item.slot) for dim, item in enumerate(found) if isinstance(item, Ref)]
    if not indexed or any(operand(call, s).dtype in {"bool", "uint8"} for _, s in indexed):
        return
    dims = [dim for dim, _ in indexed]
    wide = max(len(operand(call, s).shape) for _, s in indexed)
    adjacent = dims[-1] - dims[0] + 1 == len(dims)
    at = dims[0] if adjacent else 0
    if len(picked) != wide + len(value.shape) - len(dims):
        return
    shape = picked[at : at + wide]
    for k in range(wide):
        if shape[k] == _ONE:
            continue
        sides = ((s, broadcast_dim(operand(call, s), shape, k)) for _, s in indexed)
        yield from op_axis(call, [(s, d) for s, d in sides if d is not None], [(0, at + k)])
    for dim, extent in enumerate(value.shape):
        if dim not in dims and extent != _ONE:
            before = sum(1 for d in dims if d < dim)
            shift = wide if not adjacent or before else 0
            yield from op_axis(call, [(0, dim)], [(0, dim - before + shift)])


def _gather(call: Call) -> Iterator[OpAxis]:
    """`(self, dim, index)`."""
    value, index = call.inputs()[0], slot(call, 2)
    at = dim_of(call.arg(1), len(value.shape))
    if index is None or at is None:
        return
    yield from op_axis(call, [(index, at)], [(0, at)])
    yield from same_dims(call, (0, index), (0,), (at,))


def _index_select(call: Call) -> Iterator[OpAxis]:
    """`(self, dim, index)` with one list of indices."""
    value, index = call.inputs()[0], slot(call, 2)
    at = dim_of(call.arg(1), len(value.shape))
    if index is not None and at is not None:
        yield from op_axis(call, [(index, 0)], [(0, at)])
        yield from same_dims(call, (0,), (0,), (at,))


def _index_add(call: Call) -> Iterator[OpAxis]:
    """`(self, dim, index, source)`: rows of the source are added to some of self, which each part would add again."""
    value, index, source = call.inputs()[0], slot(call, 2), slot(call, 3)
    at = dim_of(call.arg(1), len(value.shape))
    if index is None or source is None or at is None:
        return
    yield from same_dims(call, (0, source), (0,), (at,))
    for axis in op_axis(call, [(index, 0), (source, at)], [(0, Merge.SUM)], Need.ADDEND):
        yield OpAxis(axis.operands, axis.results, axis.needs, addends=(0,))


def _index_put(call: Call) -> Iterator[OpAxis]:
    """`(self, indices, values, accumulate)`, values of the shape that picking would have."""
    found, values = call.arg(1), slot(call, 2)
    if not isinstance(found, tuple) or values is None:
        return
    for axis in _index_axes(call, found, operand(call, values).shape):
        (at,) = (how for how in axis.results.values() if not isinstance(how, Merge))
        if 0 in axis.operands:
            yield from op_axis(call, [(0, axis.operands[0]), (values, at)], [(0, axis.operands[0])])
        elif call.arg(3, "accumulate", default=False) is True and axis.operands:
            pairs = [*axis.operands.items(), (values, at)]
            for added in op_axis(call, pairs, [(0, Merge.SUM)], Need.ADDEND):
                yield OpAxis(added.operands, added.results, added.needs, addends=(0,))


def _scatter(call: Call) -> Iterator[OpAxis]:
    """`(self, dim, index, src)`: dims other than `dim` in which all have the same extent."""
    value = call.inputs()[0]
    at = dim_of(call.arg(1), len(value.shape))
    here = [s for p in (0, 2, 3) if (s := slot(call, p)) is not None and operand(call, s).shape]
    if at is not None:
        yield from same_dims(call, here, (0,), (at,))


def _batch_of_images(call: Call) -> Iterator[OpAxis]:
    """Dim 0 of images (n, c, h, w), and of all operands beside them."""
    if len(call.inputs()[0].shape) == 4:
        yield from op_axis(call, [(s, 0) for s in range(len(call.node.inputs))], [(0, 0)])


def _outer_dims(spatial: int, *positions: int, linear: bool = True) -> AxisRow:
    """Batch and channels, in front of so many spatial dims that are needed whole; `linear` in the first operand."""

    def axes(call: Call) -> Iterator[OpAxis]:
        here = [s for p in positions if (s := slot(call, p)) is not None]
        rank = len(call.output().shape)
        for dim in range(rank - spatial):
            if call.output().shape[dim] != _ONE:
                yield from op_axis(
                    call, [(s, dim) for s in here], [(k, dim) for k in range(len(call.node.outputs))]
                )

    return AxisRow(axes, linear=((0,),) if linear else ())


def _max_pool(call: Call) -> Iterator[OpAxis]:
    """`(self, kernel_size, stride, padding, dilation, ceil_mode)` to the result and places counted within its input."""
    yield from _planes(call, (0,))
    for dim, window in _pool_windows(call, 0, 1, call.output()):
        needs = () if window.halo == 0 and window.before == 0 else (Need.HALO,)
        # Padding is made of the least number, which no part can be handed in its place.
        for axis in op_axis(call, [(0, dim)], [(0, dim), (1, dim)]):
            yield OpAxis(
                axis.operands, axis.results, needs, window=window, private=(1,), whole=window.before > 0
            )


def _max_pool_backward(call: Call) -> Iterator[OpAxis]:
    """`(grad_output, self, kernel_size, stride, padding, dilation, ceil_mode, indices)`."""
    grad, given, indices = slot(call, 0), slot(call, 1), slot(call, 7)
    if grad is None or given is None or indices is None:
        return
    yield from _planes(call, (grad, given, indices))
    for dim, window in _pool_windows(call, given, 2, operand(call, grad)):
        parallel = window.halo == 0 and window.before == 0
        for axis in op_axis(call, [(grad, dim), (given, dim), (indices, dim)], [(0, dim)]):
            yield OpAxis(
                axis.operands,
                axis.results,
                window=window,
                whole=not parallel,
                own=(indices,) if parallel else (),
            )


def _planes(call: Call, here: tuple[int, ...]) -> Iterator[OpAxis]:
    """Dims in front of height and width."""
    made = call.output().shape
    for dim in range(len(made) - 2):
        if made[dim] != _ONE:
            yield from op_axis(
                call, [(s, dim) for s in here], [(k, dim) for k in range(len(call.node.outputs))]
            )


def _pool_windows(call: Call, given: int, first: int, made: Value) -> Iterator[tuple[int, Window]]:
    """Height and width with how a pool reads them, where every window lies in the input: (kernel, stride, padding, ...)."""
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
        extent = operand(call, given).shape[dim]
        if before or extent == made.shape[dim] * step:
            yield dim, Window(size, step, apart, before, (given,))


def _average_pool(call: Call) -> Iterator[OpAxis]:
    """`(self, kernel_size, stride, padding, ceil_mode, ...)`: spatial dims where windows neither overlap nor skip."""
    rank = len(call.output().shape)
    for dim in range(rank - 2):
        yield from op_axis(call, [(0, dim)], [(0, dim)])
    kernel, stride = numbers(call.arg(1)), numbers(call.arg(2, "stride", ()))
    padding = numbers(call.arg(3, "padding", (0,)))
    if not kernel or padding is None or any(padding) or stride not in ((), kernel):
        return
    for k, dim in enumerate((rank - 2, rank - 1)):
        size = kernel[k if len(kernel) > 1 else 0]
        if call.inputs()[0].shape[dim] == call.output().shape[dim] * size:
            for axis in op_axis(call, [(0, dim)], [(0, dim)]):
                yield OpAxis(axis.operands, axis.results, window=Window(size, size))


_TABLE = (
    Axed("embedding.default", AxisRow(_embedding, linear=((0,),))),
    Axed("embedding_dense_backward.default", AxisRow(_embedding_backward, linear=((0,),))),
    Axed("index.Tensor _unsafe_index.Tensor", AxisRow(_index, linear=((0,),))),
    Axed("gather.default", AxisRow(_gather, linear=((0,),))),
    Axed("index_select.default", AxisRow(_index_select, linear=((0,),))),
    Axed("index_add.default", AxisRow(_index_add, linear=((0, 3),))),
    Axed("index_put.default", AxisRow(_index_put, linear=((0, 2),))),
    Axed("scatter.src,value scatter_add.default", AxisRow(_scatter)),
    Axed("max_pool2d_with_indices.default", AxisRow(_max_pool)),
    Axed("max_pool2d_with_indices_backward.default", AxisRow(_max_pool_backward, linear=((0,),))),
    Axed("avg_pool2d.default", AxisRow(_average_pool, linear=((0,),))),
    Axed("avg_pool2d_backward.default", _outer_dims(2, 0, 1)),
    Axed("max_pool3d_with_indices.default adaptive_max_pool3d.default", _outer_dims(3, 0, linear=False)),
    Axed("max_pool3d_with_indices_backward.default", _outer_dims(3, 0, 1, 7)),
    Axed("adaptive_max_pool2d.default", _outer_dims(2, 0, linear=False)),
    Axed("adaptive_max_pool2d_backward.default", _outer_dims(2, 0, 1, 2)),
    Axed("avg_pool3d.default _adaptive_avg_pool3d.default", _outer_dims(3, 0)),
    Axed("avg_pool3d_backward.default", _outer_dims(3, 0, 1)),
    Axed("reflection_pad1d.default replication_pad1d.default", _outer_dims(1, 0)),
    Axed(
        "reflection_pad2d.default replication_pad2d.default pixel_shuffle.default", AxisRow(_batch_of_images)
    ),
    Axed("im2col.default grid_sampler_2d.default", AxisRow(_batch_of_images)),
    Axed("_adaptive_avg_pool2d.default", _outer_dims(2, 0)),
    Axed("_adaptive_avg_pool2d_backward.default", _outer_dims(2, 0, 1)),
    Axed("upsample_nearest1d.default,vec", _outer_dims(1, 0)),
    Axed(
        "upsample_nearest2d.default,vec upsample_bilinear2d.default,vec upsample_bicubic2d.default,vec",
        _outer_dims(2, 0),
    ),
    Axed(
        """
        upsample_nearest2d_backward.default upsample_bilinear2d_backward.default
        upsample_bicubic2d_backward.default
        """,
        _outer_dims(2, 0),
        shapes=(2,),
    ),
)


def rows() -> Iterator[Axed]:
    """Gathers, scatters and pools."""
    yield from _TABLE
