"""Axes of reductions, scans, softmax, norms, losses and their gradients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from neaptide.ir.axes import Merge, Need, OpAxis
from neaptide.ir.registry import AxisRow, Call
from neaptide.ops.axes.forms import (
    Axed,
    all_but,
    argument_dim,
    broadcast_dim,
    number,
    numbers,
    op_axis,
    operand,
    result,
    same_dims,
    slot,
)
from neaptide.symbolic.size_expr import SizeExpr

_ONE = SizeExpr.const(1)

_FIRST = (0,)


def _reduced(call: Call, position: int) -> frozenset[int] | None:
    """Dims over which it reduces; None where that is not known."""
    rank = len(call.inputs()[0].shape)
    dim = call.arg(position, "dim")
    one = number(dim)
    dims = numbers(dim) if one is None else (one,)
    if dim is None or dims == ():
        return frozenset(range(rank))
    return None if dims is None else frozenset(d % max(rank, 1) for d in dims)


def _reduction(how: Merge | None, *needs: Need, whole: bool = False, position: int = 1) -> AxisRow:
    """`op(input, dim, keepdim)`, with the dims at a position: reduced dims are merged so, or needed whole without `how`; others stay."""

    def axes(call: Call) -> Iterator[OpAxis]:
        value = call.inputs()[0]
        gone = frozenset(range(len(value.shape))) if whole else _reduced(call, position)
        if gone is None:
            return
        outs = range(len(call.node.outputs))
        kept = all(len(made.shape) == len(value.shape) for made in call.outputs())
        for dim, extent in enumerate(value.shape):
            if extent == _ONE:
                continue
            if dim not in gone:
                at = dim if kept else dim - sum(1 for d in gone if d < dim)
                yield from op_axis(call, [(0, dim)], [(k, at) for k in outs])
            elif how is not None:
                yield from op_axis(call, [(0, dim)], [(k, how) for k in outs], *needs)

    return AxisRow(axes, linear=(_FIRST,) if how is Merge.SUM else ())


def _layer_norm(call: Call) -> Iterator[OpAxis]:
    """`(input, normalized_shape, weight, bias, eps)` to the result, mean and 1 / deviation."""
    rank, normalised = len(call.inputs()[0].shape), numbers(call.arg(1))
    if normalised is not None:
        for dim in range(rank):
            if dim < rank - len(normalised):
                yield from op_axis(call, [(0, dim)], [(0, dim), (1, dim), (2, dim)])
            else:
                at = dim - rank + len(normalised)
                yield from _needed_whole(call, [(0, dim), (slot(call, 2), at), (slot(call, 3), at)], dim)


def _layer_norm_backward(call: Call) -> Iterator[OpAxis]:
    """`(grad_out, input, normalized_shape, mean, rstd, weight, bias, output_mask)` to three gradients."""
    rank, normalised = len(call.inputs()[0].shape), numbers(call.arg(2))
    if normalised is None:
        return
    for dim in range(rank - len(normalised)):
        yield from op_axis(
            call,
            [(slot(call, p), dim) for p in (0, 1, 3, 4)],
            [(result(call, 0), dim), (result(call, 1), Merge.SUM), (result(call, 2), Merge.SUM)],
        )
    for at in range(len(normalised)):
        dim = rank - len(normalised) + at
        affine = [(slot(call, p), at) for p in (5, 6)]
        yield from op_axis(
            call,
            [(slot(call, 0), dim), (slot(call, 1), dim), *affine],
            [(result(call, 0), dim), (result(call, 1), at), (result(call, 2), at)],
            whole=True,
        )


def _rms_norm(call: Call) -> Iterator[OpAxis]:
    """`(input, normalized_shape, weight, eps)` to the result and 1 / root mean square."""
    rank, normalised = len(call.inputs()[0].shape), numbers(call.arg(1))
    if normalised is not None:
        for dim in range(rank - len(normalised)):
            yield from op_axis(call, [(0, dim)], [(0, dim), (1, dim)])


def _group_norm(call: Call) -> Iterator[OpAxis]:
    """`(input, weight, bias, N, C, HxW, group, eps)` to the result, mean and 1 / deviation (N, group)."""
    yield from op_axis(call, [(0, 0)], [(0, 0), (1, 0), (2, 0)], sizes=(3,))


def _group_norm_backward(call: Call) -> Iterator[OpAxis]:
    """`(grad_out, input, mean, rstd, weight, N, C, HxW, group, output_mask)` to three gradients."""
    yield from op_axis(
        call,
        [(slot(call, p), 0) for p in (0, 1, 2, 3)],
        [(result(call, 0), 0), (result(call, 1), Merge.SUM), (result(call, 2), Merge.SUM)],
        sizes=(5,),
    )


def _batch_norm(call: Call) -> Iterator[OpAxis]:
    """`(input, weight, bias, running_mean, running_var, training, ...)`: channels; all dims where it only applies them."""
    rank = len(call.inputs()[0].shape)
    channels = [(slot(call, p), 0) for p in range(1, 5)]
    made = call.outputs()
    empty = [made[k].shape != made[0].shape[1:2] for k in (1, 2)]
    saved: list[tuple[int | None, int | Merge]] = [
        (k + 1, Merge.SAME if none else 0) for k, none in enumerate(empty)
    ]
    yield from op_axis(call, [(0, 1), *channels], [(0, 1), *saved])
    if call.arg(5) is False and all(empty):
        for dim in _but_channels(rank):
            yield from op_axis(call, [(0, dim)], [(0, dim), (1, Merge.SAME), (2, Merge.SAME)])
    else:
        for dim in _but_channels(rank):
            yield from _needed_whole(call, [(0, dim)], dim)


def _batch_norm_without_statistics(call: Call) -> Iterator[OpAxis]:
    """`(input, weight, bias, training, momentum, eps)`."""
    channels = [(slot(call, p), 0) for p in (1, 2)]
    yield from op_axis(call, [(0, 1), *channels], [(0, 1), (1, 0), (2, 0)])
    for dim in _but_channels(len(call.inputs()[0].shape)):
        yield from _needed_whole(call, [(0, dim)], dim)


def _but_channels(rank: int) -> Iterator[int]:
    yield from (dim for dim in range(rank) if dim != 1)


def _needed_whole(call: Call, operands: list[tuple[int | None, int]], dim: int) -> Iterator[OpAxis]:
    """An axis that is needed whole and lies in one dim of the first result."""
    first = result(call, 0)
    if first is not None:
        rest = ((k, Merge.SAME) for k in range(len(call.node.outputs)) if k != first)
        yield from op_axis(call, operands, [(first, dim), *rest], whole=True)


def _batch_norm_backward(call: Call) -> Iterator[OpAxis]:
    """`(grad_out, input, weight, running_mean, running_var, save_mean, save_invstd, train, eps, output_mask)`."""
    channels = [
        (s, 0) for p in range(2, 7) if (s := slot(call, p)) is not None and operand(call, s).shape != (_ZERO,)
    ]
    made = [(result(call, k), 1 if k == 0 else 0) for k in range(3)]
    yield from op_axis(call, [(slot(call, 0), 1), (slot(call, 1), 1), *channels], made)
    for dim in _but_channels(len(call.inputs()[0].shape)):
        both = [(slot(call, 0), dim), (slot(call, 1), dim)]
        if call.arg(7) is False:
            added: list[tuple[int | None, int | Merge]] = [(result(call, k), Merge.SUM) for k in (1, 2)]
            yield from op_axis(call, both, [(result(call, 0), dim), *added])
        else:
            yield from _needed_whole(call, both, dim)


_ZERO = SizeExpr.const(0)


def _softmax_gradient(call: Call) -> Iterator[OpAxis]:
    """`(grad_output, output, dim, dtype)`."""
    yield from same_dims(call, (0, 1), (0,), argument_dim(2)(call))


# Value of ATen's argument `reduction`.
_MEAN = 1


def _nll(call: Call) -> Iterator[OpAxis]:
    """`(log-probabilities (n, c, ...), target (n, ...), weight, reduction, ignore_index)` to loss and total weight."""
    yield from _nll_axes(call, 0, 1, 3)


def _nll_axes(call: Call, given: int, target: int, reduction: int) -> Iterator[OpAxis]:
    scores, how = operand(call, given), number(call.arg(reduction))
    if len(scores.shape) < 2 or how is None:
        return
    for dim in range(len(operand(call, target).shape)):
        made: list[tuple[int | None, int | Merge]] = [(0, Merge.SUM if how else dim), (1, Merge.SUM)]
        needs = (Need.MEAN,) if how == _MEAN else ()
        yield from op_axis(call, [(slot(call, 0), dim + (dim > 0)), (slot(call, 1), dim)], made, *needs)


def _nll_backward(call: Call) -> Iterator[OpAxis]:
    """`(grad_output, self, target, weight, reduction, ignore_index, total_weight)`; the total counts in a mean only."""
    scores, how = slot(call, 1), number(call.arg(4))
    if scores is None or how is None or len(operand(call, scores).shape) < 2:
        return
    target = slot(call, 2)
    assert target is not None
    for dim in range(len(operand(call, target).shape)):
        grad = [(slot(call, 0), dim)] if how == 0 else []
        yield from op_axis(
            call,
            [(scores, dim + (dim > 0)), (target, dim), *grad],
            [(0, dim + (dim > 0))],
            unread=() if how == _MEAN else (slot(call, 6),),
        )


def _pointwise_loss(reduction: int, *others: int) -> AxisRow:
    """`(self, target, ..., reduction)` of one shape: element by element, then not reduced, a mean or a sum.

    Weights at the positions `others` are broadcast.
    """

    def axes(call: Call) -> Iterator[OpAxis]:
        how = number(call.arg(reduction, "reduction", _MEAN))
        a, b = operand(call, 0), operand(call, 1)
        if a.shape != b.shape or how is None:
            return
        needs = (Need.MEAN,) if how == _MEAN else ()
        weights = [s for p in others if (s := slot(call, p)) is not None]
        for dim, extent in enumerate(a.shape):
            if extent != _ONE:
                beside = _under(call, weights, a.shape, dim)
                yield from op_axis(
                    call, [(0, dim), (1, dim), *beside], [(0, Merge.SUM if how else dim)], *needs
                )

    return AxisRow(axes)


def _pointwise_loss_backward(reduction: int, *others: int) -> AxisRow:
    """`(grad_output, self, target, ..., reduction)`: a mean divides by the number of elements that it sees."""

    def axes(call: Call) -> Iterator[OpAxis]:
        how = number(call.arg(reduction, "reduction", _MEAN))
        grad, a, b = (slot(call, p) for p in range(3))
        if grad is None or a is None or b is None or how is None:
            return
        shape = operand(call, a).shape
        if operand(call, b).shape != shape:
            return
        needs = (Need.MEAN,) if how == _MEAN else ()
        tied = operand(call, grad).shape == shape
        beside = [*([grad] if tied else []), *(s for p in others if (s := slot(call, p)) is not None)]
        for dim, extent in enumerate(shape):
            if extent != _ONE and (tied or how):
                operands = [(a, dim), (b, dim), *_under(call, beside, shape, dim)]
                yield from op_axis(call, operands, [(0, dim)], *needs)

    return AxisRow(axes, linear=((0,),))


def _under(call: Call, here: list[int], shape: tuple[SizeExpr, ...], dim: int) -> list[tuple[int, int]]:
    """Those operands that lie under a dim when they are broadcast, and in which of their dims."""
    found = ((s, broadcast_dim(operand(call, s), shape, dim)) for s in here)
    return [(s, at) for s, at in found if at is not None]


ROWS: Final = (
    Axed("sum.dim_IntList,default", _reduction(Merge.SUM)),
    Axed("mean.dim", _reduction(Merge.SUM, Need.MEAN)),
    Axed("mean", _reduction(Merge.SUM, Need.MEAN, whole=True)),
    Axed("amax", _reduction(Merge.MAX)),
    Axed("amin", _reduction(Merge.MIN)),
    Axed("max", _reduction(Merge.MAX, whole=True)),
    Axed("min", _reduction(Merge.MIN, whole=True)),
    Axed(
        """
        argmax argmin prod.dim_int logsumexp all.dim,dims any.dim,dims max.dim min.dim var.correction
        std.correction var_mean.correction std_mean.correction median.dim mode
        """,
        _reduction(None),
    ),
    Axed("kthvalue", _reduction(None, position=2)),
    Axed("median norm.Scalar", AxisRow()),
    Axed("linalg_vector_norm norm.ScalarOpt_dim", _reduction(None, position=2)),
    Axed("cumsum", all_but(argument_dim(1), _FIRST)),
    Axed("cumprod logcumsumexp cummax cummin", all_but(argument_dim(1))),
    Axed("sort argsort", all_but(argument_dim(1, "dim", -1))),
    Axed("sort.stable argsort.stable", AxisRow()),
    Axed("topk", all_but(argument_dim(2, "dim", -1))),
    Axed("_softmax _log_softmax _safe_softmax softmax.int log_softmax.int", all_but(argument_dim(1))),
    Axed("_softmax_backward_data _log_softmax_backward_data", AxisRow(_softmax_gradient, linear=(_FIRST,))),
    Axed("native_layer_norm", AxisRow(_layer_norm)),
    Axed("native_layer_norm_backward", AxisRow(_layer_norm_backward)),
    Axed("_fused_rms_norm", AxisRow(_rms_norm)),
    Axed("native_group_norm", AxisRow(_group_norm)),
    Axed("native_group_norm_backward", AxisRow(_group_norm_backward)),
    Axed("native_batch_norm _native_batch_norm_legit", AxisRow(_batch_norm)),
    Axed("_native_batch_norm_legit.no_stats", AxisRow(_batch_norm_without_statistics)),
    Axed("native_batch_norm_backward", AxisRow(_batch_norm_backward)),
    Axed("nll_loss_forward nll_loss2d_forward", AxisRow(_nll)),
    Axed("nll_loss_backward nll_loss2d_backward", AxisRow(_nll_backward)),
    Axed("mse_loss smooth_l1_loss huber_loss l1_loss soft_margin_loss", _pointwise_loss(2)),
    Axed(
        "mse_loss_backward smooth_l1_loss_backward huber_loss_backward soft_margin_loss_backward",
        _pointwise_loss_backward(3),
    ),
    Axed("binary_cross_entropy", _pointwise_loss(3, 2)),
    Axed("binary_cross_entropy_backward", _pointwise_loss_backward(4, 3)),
    Axed("binary_cross_entropy_with_logits", _pointwise_loss(4, 2, 3)),
)
