"""Axes of losses and their gradients."""

from __future__ import annotations

from collections.abc import Iterator

from neaptide.ir.axes import Merge, Need, OpAxis
from neaptide.ir.registry import AxisRow, Call
from neaptide.ops.axes_forms import Axed, broadcast_dim, number, op_axis, operand, slot
from neaptide.symbolic.size_expr import SizeExpr

_ONE = SizeExpr.const(1)

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

    Args:
        reduction: position of the argument.
        others: positions of weights, which are broadcast.
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


_TABLE = (
    Axed("nll_loss_forward.default nll_loss2d_forward.default", AxisRow(_nll)),
    Axed("nll_loss_backward.default nll_loss2d_backward.default", AxisRow(_nll_backward)),
    Axed(
        "mse_loss.default smooth_l1_loss.default huber_loss.default l1_loss.default soft_margin_loss.default",
        _pointwise_loss(2),
    ),
    Axed(
        """
        mse_loss_backward.default smooth_l1_loss_backward.default huber_loss_backward.default
        soft_margin_loss_backward.default
        """,
        _pointwise_loss_backward(3),
    ),
    Axed("binary_cross_entropy.default", _pointwise_loss(3, 2)),
    Axed("binary_cross_entropy_backward.default", _pointwise_loss_backward(4, 3)),
    Axed("binary_cross_entropy_with_logits.default", _pointwise_loss(4, 2, 3)),
)


def rows() -> Iterator[Axed]:
    """Losses, reduced or not."""
    yield from _TABLE
