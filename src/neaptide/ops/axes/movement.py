"""Axes of views, of copies that only move elements, and of indexing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from neaptide.ir.axes import Merge, Need, OpAxis
from neaptide.ir.nodes import Arg, Ref
from neaptide.ir.registry import AxisRow, Call
from neaptide.ops.axes.forms import (
    Axed,
    Dims,
    all_but,
    argument_dim,
    argument_dims,
    broadcast_dim,
    dim_of,
    moved,
    number,
    numbers,
    op_axis,
    operand,
    pointwise,
    same_dims,
    slot,
    slots,
)
from neaptide.symbolic.size_expr import SizeExpr

_ONE = SizeExpr.const(1)

_FIRST = (0,)


def _rank(call: Call) -> int:
    return len(call.inputs()[0].shape)


def _transposed(call: Call) -> Mapping[int, int] | None:
    rank = _rank(call)
    a, b = dim_of(call.arg(1, "dim0"), rank), dim_of(call.arg(2, "dim1"), rank)
    if a is None or b is None:
        return None
    return {d: b if d == a else a if d == b else d for d in range(rank)}


def _last_two(call: Call) -> Mapping[int, int] | None:
    rank = _rank(call)
    return {d: d if d < rank - 2 or rank < 2 else 2 * rank - 3 - d for d in range(rank)}


def _permuted(call: Call) -> Mapping[int, int] | None:
    rank = _rank(call)
    dims = numbers(call.arg(1, "dims"))
    return None if dims is None else {dim % rank: at for at, dim in enumerate(dims)}


def _selected(call: Call) -> Mapping[int, int] | None:
    rank = _rank(call)
    gone = dim_of(call.arg(1, "dim", 0), rank)
    if gone is None:
        return None
    return {d: d - (d > gone) for d in range(rank) if d != gone}


def _squeezed(call: Call) -> Mapping[int, int] | None:
    """A dim that is named goes where its part has one element, so it is needed whole."""
    rank = _rank(call)
    named = numbers(call.arg(1, "dim")) or (number(call.arg(1, "dim")),)
    dims = {dim % rank for dim in named if dim is not None}
    kept = [d for d in range(rank) if d not in dims or call.inputs()[0].shape[d] != _ONE]
    return {d: at for at, d in enumerate(kept) if d not in dims}


def _sliced(call: Call) -> Iterable[int]:
    """The dim of a slice, unless all of it is taken."""
    (dim,) = list(argument_dim(1, "dim", 0)(call))[:1]
    value = call.inputs()[0]
    start, step = number(call.arg(2, "start"), 0), number(call.arg(4, "step", 1), 0)
    return () if (start, step) == (0, 1) and call.output().shape[dim] == value.shape[dim] else (dim,)


def _expanded(call: Call) -> Iterator[OpAxis]:
    """Repeated dims have no dim in the operand."""
    value, made = call.inputs()[0], call.output()
    shift = len(made.shape) - len(value.shape)
    for dim, extent in enumerate(made.shape):
        if extent != _ONE:
            has = dim >= shift and value.shape[dim - shift] == extent
            yield from op_axis(call, [(0, dim - shift)] if has else [], [(0, dim)])


def _stacked(call: Call) -> Iterator[OpAxis]:
    made = call.output()
    new = dim_of(call.arg(1, "dim", 0), len(made.shape))
    for dim in range(len(made.shape)):
        if new is not None and dim != new and made.shape[dim] != _ONE:
            at = dim - (dim > new)
            yield from op_axis(call, [(s, at) for s in slots(call, 0)], [(0, dim)])


def _joined(call: Call) -> Iterator[OpAxis]:
    here = slots(call, 0)
    whole = argument_dim(1, "dim", 0)(call)
    if len({len(call.inputs()[s].shape) for s in here}) == 1:
        yield from same_dims(call, here, (0,), whole)


def _unfolded(position: int, *, folded: bool = False) -> Dims:
    """Windows of the dim that an argument names lie in the last dim, of the operand where they are `folded` and else of the result."""

    def to(call: Call) -> Mapping[int, int] | None:
        rank = _rank(call) - folded
        whole = dim_of(call.arg(position), rank)
        return None if whole is None else {dim: dim for dim in range(rank) if dim != whole}

    return to


def _as_real(call: Call) -> Mapping[int, int] | None:
    """A last dim of two is added."""
    return {dim: dim for dim in range(_rank(call))}


def _as_complex(call: Call) -> Mapping[int, int] | None:
    return {dim: dim for dim in range(_rank(call) - 1)}


def _matrix(call: Call) -> Iterable[int]:
    return (_rank(call) - 2, _rank(call) - 1)


def _unselected(call: Call) -> Mapping[int, int] | None:
    new = dim_of(call.arg(2, "dim"), len(call.output().shape))
    return None if new is None else {dim: dim + (dim >= new) for dim in range(_rank(call))}


def _diagonal(first: int, default: tuple[int, int], *, made: bool) -> Dims:
    """Dims beside the two that a diagonal runs through, which are arguments from `first` on; it is the last dim of the operand
    where it is `made` into one that runs through two, and else of the result.
    """

    def to(call: Call) -> Mapping[int, int] | None:
        rank = _rank(call) + made
        found = [dim_of(call.arg(first + k, f"dim{k + 1}", default[k]), rank) for k in range(2)]
        kept = [dim for dim in range(rank) if dim not in found]
        if None in found:
            return None
        return dict(enumerate(kept)) if made else {dim: at for at, dim in enumerate(kept)}

    return to


def _repeated(call: Call) -> Mapping[int, int] | None:
    """Dims that are repeated once."""
    shift = len(call.output().shape) - _rank(call)
    return {dim: dim + shift for dim in range(_rank(call))}


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
    yield from op_axis(call, [(index, 0), (source, at)], [(0, Merge.SUM)], Need.ADDEND, addends=(0,))


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
            yield from op_axis(call, pairs, [(0, Merge.SUM)], Need.ADDEND, addends=(0,))


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


ROWS: Final = (
    Axed(
        "view _unsafe_view reshape view_copy _reshape_copy",
        AxisRow(regroups=True, linear=(_FIRST,)),
        shapes=(1,),
    ),
    Axed("unsqueeze flatten.using_ints ravel unsqueeze_copy", AxisRow(regroups=True, linear=(_FIRST,))),
    Axed(
        """
        alias detach lift_fresh contiguous lift conj positive _conj _neg_view real imag resolve_conj
        resolve_neg
        """,
        pointwise(_FIRST, positions=(0,)),
    ),
    Axed("transpose.int swapaxes swapdims transpose_copy.int", moved(_transposed, _FIRST)),
    Axed("t mT numpy_T t_copy", moved(_last_two, _FIRST)),
    Axed("permute permute_copy", moved(_permuted, _FIRST)),
    Axed("select.int unbind.int select_copy.int unbind_copy.int", moved(_selected, _FIRST)),
    Axed("squeeze.dim,dims squeeze_copy.dim,dims", moved(_squeezed, _FIRST)),
    Axed("slice.Tensor slice_copy.Tensor", all_but(_sliced, _FIRST)),
    Axed("narrow narrow_copy", all_but(argument_dim(1, "dim"), _FIRST)),
    Axed(
        """
        split.Tensor,sizes split_with_sizes unsafe_split.Tensor unsafe_split_with_sizes chunk unsafe_chunk
        split_copy.Tensor split_with_sizes_copy
        """,
        all_but(argument_dim(2, "dim", 0), _FIRST),
    ),
    Axed("expand broadcast_to expand_copy", AxisRow(_expanded, linear=(_FIRST,)), shapes=(1,)),
    Axed("cat concat concatenate", AxisRow(_joined, linear=(_FIRST,))),
    Axed("stack _stack", AxisRow(_stacked, linear=(_FIRST,))),
    Axed("glu", all_but(argument_dim(1, "dim", -1))),
    Axed("glu_backward", all_but(argument_dim(2), _FIRST, operands=(0, 1))),
    Axed("diagonal", moved(_diagonal(2, (0, 1), made=False), _FIRST)),
    Axed("diag_embed", moved(_diagonal(2, (-2, -1), made=True), _FIRST)),
    Axed("diagonal_backward", moved(_diagonal(3, (0, 1), made=True), _FIRST), shapes=(1,)),
    Axed("unfold_backward", moved(_unfolded(2, folded=True), _FIRST), shapes=(1,)),
    Axed("unfold", moved(_unfolded(1), _FIRST)),
    Axed("view_as_real", moved(_as_real, _FIRST)),
    Axed("view_as_complex", moved(_as_complex, _FIRST)),
    Axed("roll", all_but(argument_dims(2, "dims"), _FIRST)),
    Axed("flip", all_but(argument_dims(1, "dims"), _FIRST)),
    Axed("tril triu", all_but(_matrix, _FIRST)),
    Axed("repeat", moved(_repeated, _FIRST)),
    Axed("slice_backward", all_but(argument_dim(2, "dim"), _FIRST), shapes=(1,)),
    Axed("select_backward", moved(_unselected, _FIRST), shapes=(1,)),
    Axed("slice_scatter", all_but(argument_dim(2, "dim", 0), (0, 1), operands=(0, 1))),
    Axed("embedding", AxisRow(_embedding, linear=((0,),))),
    Axed("embedding_dense_backward", AxisRow(_embedding_backward, linear=((0,),))),
    Axed("index.Tensor _unsafe_index.Tensor", AxisRow(_index, linear=((0,),))),
    Axed("gather", AxisRow(_gather, linear=((0,),))),
    Axed("index_select", AxisRow(_index_select, linear=((0,),))),
    Axed("index_add index_add_", AxisRow(_index_add, linear=((0, 3),))),
    Axed("index_put index_put_", AxisRow(_index_put, linear=((0, 2),))),
    Axed("scatter.src,value scatter_.value scatter_add scatter_reduce.two", AxisRow(_scatter)),
    Axed("bucketize.Tensor", pointwise(positions=_FIRST)),
    Axed("searchsorted.Tensor", AxisRow(_searched)),
    # Which element is taken depends on how many were taken before it.
    Axed("masked_scatter masked_scatter_backward", AxisRow()),
)
