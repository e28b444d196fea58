"""Axes of indexing."""

from __future__ import annotations

from collections.abc import Iterator

from neaptide.ir.axes import Merge, Need, OpAxis
from neaptide.ir.nodes import Arg, Ref
from neaptide.ir.registry import AxisRow, Call
from neaptide.ops.axes_forms import Axed, broadcast_dim, dim_of, op_axis, operand, pointwise, same_dims, slot
from neaptide.symbolic.size_expr import SizeExpr

_ONE = SizeExpr.const(1)
_FIRST = (0,)


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


def _searched(call: Call) -> Iterator[OpAxis]:
    """`(sorted_sequence, self)`: each number is looked for by itself, in the one sequence or in that of its row."""
    if len(call.node.inputs) != 2:
        return
    sequence, given = call.inputs()
    rank = len(given.shape)
    for dim, extent in enumerate(given.shape):
        if extent != _ONE:
            rows = [(0, dim)] if len(sequence.shape) > 1 and dim < rank - 1 else []
            yield from op_axis(call, [*rows, (1, dim)], [(0, dim)])


_TABLE = (
    Axed("embedding.default", AxisRow(_embedding, linear=((0,),))),
    Axed("embedding_dense_backward.default", AxisRow(_embedding_backward, linear=((0,),))),
    Axed("index.Tensor _unsafe_index.Tensor", AxisRow(_index, linear=((0,),))),
    Axed("gather.default", AxisRow(_gather, linear=((0,),))),
    Axed("index_select.default", AxisRow(_index_select, linear=((0,),))),
    Axed("index_add.default index_add_.default", AxisRow(_index_add, linear=((0, 3),))),
    Axed("index_put.default index_put_.default", AxisRow(_index_put, linear=((0, 2),))),
    Axed("scatter.src,value scatter_.value scatter_add.default scatter_reduce.two", AxisRow(_scatter)),
    Axed("bucketize.Tensor", pointwise(positions=_FIRST)),
    Axed("searchsorted.Tensor", AxisRow(_searched)),
    # Which element is taken depends on how many were taken before it.
    Axed("masked_scatter.default masked_scatter_backward.default", AxisRow()),
)


def rows() -> Iterator[Axed]:
    """Gathers and scatters."""
    yield from _TABLE
