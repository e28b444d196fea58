"""Axes of views, and of copies that only move elements."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from neaptide.ir.axes import OpAxis
from neaptide.ir.registry import AxisRow, Call
from neaptide.ops.axes_forms import (
    Axed,
    all_but,
    argument_dim,
    dim_of,
    moved,
    number,
    numbers,
    op_axis,
    pointwise,
    same_dims,
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


def _unfolded(call: Call) -> Iterator[OpAxis]:
    """`(self, dim, size, step)`: windows of one dim, which lie in a new last dim."""
    rank = _rank(call)
    whole = dim_of(call.arg(1), rank)
    for dim in range(rank):
        if whole is not None and dim != whole and call.inputs()[0].shape[dim] != _ONE:
            yield from op_axis(call, [(0, dim)], [(0, dim)])


def _as_real(call: Call) -> Iterator[OpAxis]:
    """A last dim of two is added."""
    for dim in range(_rank(call)):
        if call.inputs()[0].shape[dim] != _ONE:
            yield from op_axis(call, [(0, dim)], [(0, dim)])


def _as_complex(call: Call) -> Mapping[int, int] | None:
    return {dim: dim for dim in range(_rank(call) - 1)}


def _rolled(call: Call) -> Iterable[int]:
    rank = _rank(call)
    dims = numbers(call.arg(2, "dims", ()))
    return range(rank) if not dims else {d % rank for d in dims}


def _flipped(call: Call) -> Iterable[int]:
    dims = numbers(call.arg(1, "dims"))
    rank = _rank(call)
    return range(rank) if dims is None else {d % rank for d in dims}


def _matrix(call: Call) -> Iterable[int]:
    return (_rank(call) - 2, _rank(call) - 1)


def _unsliced(call: Call) -> Iterable[int]:
    return argument_dim(2, "dim")(call)


def _unselected(call: Call) -> Iterator[OpAxis]:
    made = call.output()
    new = dim_of(call.arg(2, "dim"), len(made.shape))
    for dim in range(len(made.shape)):
        if new is not None and dim != new and made.shape[dim] != _ONE:
            yield from op_axis(call, [(0, dim - (dim > new))], [(0, dim)])


def _diagonal_dims(call: Call, rank: int, first: int, default: tuple[int, int]) -> list[int] | None:
    """Dims of a tensor of so many beside the two that a diagonal runs through; these are arguments from `first` on."""
    found = [dim_of(call.arg(first + k, f"dim{k + 1}", default[k]), rank) for k in range(2)]
    return None if None in found else [dim for dim in range(rank) if dim not in found]


def _diagonal(call: Call) -> Mapping[int, int] | None:
    """`(self, offset, dim1, dim2)`: the diagonal is a new last dim."""
    kept = _diagonal_dims(call, _rank(call), 2, (0, 1))
    return None if kept is None else {dim: at for at, dim in enumerate(kept)}


def _diagonal_embedded(call: Call) -> Mapping[int, int] | None:
    """`(self, offset, dim1, dim2)`: the last dim becomes a diagonal."""
    kept = _diagonal_dims(call, _rank(call) + 1, 2, (-2, -1))
    return None if kept is None else dict(enumerate(kept))


def _diagonal_backward(call: Call) -> Mapping[int, int] | None:
    """`(grad_output, sizes, offset, dim1, dim2)`."""
    kept = _diagonal_dims(call, _rank(call) + 1, 3, (0, 1))
    return None if kept is None else dict(enumerate(kept))


def _unfolded_backward(call: Call) -> Mapping[int, int] | None:
    """`(grad_in, input_sizes, dim, size, step)`: windows of one dim lie in the last."""
    rank = _rank(call) - 1
    whole = dim_of(call.arg(2), rank)
    return None if whole is None else {dim: dim for dim in range(rank) if dim != whole}


def _repeated(call: Call) -> Iterator[OpAxis]:
    """Dims that are repeated once."""
    value, made = call.inputs()[0], call.output()
    shift = len(made.shape) - len(value.shape)
    for dim in range(max(shift, 0), len(made.shape)):
        if made.shape[dim] == value.shape[dim - shift] != _ONE:
            yield from op_axis(call, [(0, dim - shift)], [(0, dim)])


_TABLE = (
    Axed(
        "view.default _unsafe_view.default reshape.default view_copy.default _reshape_copy.default",
        AxisRow(regroups=True, linear=(_FIRST,)),
        shapes=(1,),
    ),
    Axed(
        "unsqueeze.default flatten.using_ints ravel.default unsqueeze_copy.default",
        AxisRow(regroups=True, linear=(_FIRST,)),
    ),
    Axed(
        """
        alias.default detach.default lift_fresh.default contiguous.default lift.default conj.default
        positive.default _conj.default _neg_view.default real.default imag.default resolve_conj.default
        resolve_neg.default
        """,
        pointwise(_FIRST, positions=(0,)),
    ),
    Axed("transpose.int swapaxes.default swapdims.default transpose_copy.int", moved(_transposed, _FIRST)),
    Axed("t.default mT.default numpy_T.default t_copy.default", moved(_last_two, _FIRST)),
    Axed("permute.default permute_copy.default", moved(_permuted, _FIRST)),
    Axed("select.int unbind.int select_copy.int unbind_copy.int", moved(_selected, _FIRST)),
    Axed("squeeze.dim,dims squeeze_copy.dim,dims", moved(_squeezed, _FIRST)),
    Axed("slice.Tensor slice_copy.Tensor", all_but(_sliced, _FIRST)),
    Axed("narrow.default narrow_copy.default", all_but(argument_dim(1, "dim"), _FIRST)),
    Axed(
        """
        split.Tensor,sizes split_with_sizes.default unsafe_split.Tensor unsafe_split_with_sizes.default
        chunk.default unsafe_chunk.default split_copy.Tensor split_with_sizes_copy.default
        """,
        all_but(argument_dim(2, "dim", 0), _FIRST),
    ),
    Axed(
        "expand.default broadcast_to.default expand_copy.default",
        AxisRow(_expanded, linear=(_FIRST,)),
        shapes=(1,),
    ),
    Axed("cat.default concat.default concatenate.default", AxisRow(_joined, linear=(_FIRST,))),
    Axed("stack.default _stack.default", AxisRow(_stacked, linear=(_FIRST,))),
    Axed("glu.default", all_but(argument_dim(1, "dim", -1))),
    Axed("glu_backward.default", all_but(argument_dim(2), _FIRST, operands=(0, 1))),
    Axed("diagonal.default", moved(_diagonal, _FIRST)),
    Axed("diag_embed.default", moved(_diagonal_embedded, _FIRST)),
    Axed("diagonal_backward.default", moved(_diagonal_backward, _FIRST), shapes=(1,)),
    Axed("unfold_backward.default", moved(_unfolded_backward, _FIRST), shapes=(1,)),
    Axed("unfold.default", AxisRow(_unfolded, linear=(_FIRST,))),
    Axed("view_as_real.default", AxisRow(_as_real, linear=(_FIRST,))),
    Axed("view_as_complex.default", moved(_as_complex, _FIRST)),
    Axed("roll.default", all_but(_rolled, _FIRST)),
    Axed("flip.default", all_but(_flipped, _FIRST)),
    Axed("tril.default triu.default", all_but(_matrix, _FIRST)),
    Axed("repeat.default", AxisRow(_repeated, linear=(_FIRST,))),
    Axed("slice_backward.default", all_but(_unsliced, _FIRST), shapes=(1,)),
    Axed("select_backward.default", AxisRow(_unselected, linear=(_FIRST,)), shapes=(1,)),
    Axed("slice_scatter.default", all_but(argument_dim(2, "dim", 0), (0, 1), operands=(0, 1))),
)


def rows() -> Iterator[Axed]:
    """Views, joins, paddings and permutations."""
    yield from _TABLE
