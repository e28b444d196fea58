"""Axes of matrix products, convolutions and attention."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from neaptide.ir.axes import Merge, Need, OpAxis, Window
from neaptide.ir.registry import AxisRow, Call
from neaptide.ops.axes_forms import (
    Axed,
    broadcast_dim,
    einsum,
    keyword_slot,
    number,
    numbers,
    op_axis,
    operand,
    padding_at,
    result,
    slot,
)
from neaptide.symbolic.size_expr import SizeExpr

_ONE = SizeExpr.const(1)


def _linear(call: Call) -> Iterator[OpAxis]:
    """`linear(input (..., k), weight (n, k), bias (n))`."""
    rank = len(call.inputs()[0].shape)
    weight, bias = slot(call, 1, "weight"), slot(call, 2, "bias")
    for dim in range(rank - 1):
        yield from op_axis(call, [(0, dim)], [(0, dim)])
    yield from op_axis(call, [(weight, 0), (bias, 0)], [(0, rank - 1)])
    if bias is None:
        yield from op_axis(call, [(0, rank - 1), (weight, 1)], [(0, Merge.SUM)])


def _matmul(call: Call) -> Iterator[OpAxis]:
    """`(..., m, k) @ (..., k, n)`, the dims in front broadcast."""
    a, b, made = operand(call, 0), operand(call, 1), call.output()
    if len(a.shape) < 2 or len(b.shape) < 2:
        return
    rank = len(made.shape)
    for dim in range(rank - 2):
        sides = [
            (s, at) for s in (0, 1) if (at := broadcast_dim(operand(call, s), made.shape, dim)) is not None
        ]
        if made.shape[dim] != _ONE:
            yield from op_axis(call, sides, [(0, dim)])
    yield from op_axis(call, [(0, len(a.shape) - 2)], [(0, rank - 2)])
    yield from op_axis(call, [(1, len(b.shape) - 1)], [(0, rank - 1)])
    yield from op_axis(call, [(0, len(a.shape) - 1), (1, len(b.shape) - 2)], [(0, Merge.SUM)])


def _convolution(call: Call) -> Iterator[OpAxis]:
    """`convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)`."""
    given, weight, bias = slot(call, 0), slot(call, 1), slot(call, 2)
    yield from op_axis(call, [(given, 0)], [(0, 0)])
    if call.arg(6) is not False:
        yield from _unfolded(call)
        return
    if number(call.arg(8)) == 1:
        yield from op_axis(call, [(weight, 0), (bias, 0)], [(0, 1)])
        for axis in op_axis(call, [(given, 1), (weight, 1)], [(0, Merge.SUM)]):
            yield _with_addend(axis, bias)
    elif _depthwise(call, 0, 1, 8):
        yield from op_axis(call, [(given, 1), (weight, 0), (bias, 0)], [(0, 1)], sizes=(8,))
    for dim, window in _windows(call, 1, 3, (0,)):
        for axis in op_axis(call, [(given, dim)], [(0, dim)], *_halo(window)):
            yield OpAxis(axis.operands, axis.results, axis.needs, window=window)


def _unfolded(call: Call) -> Iterator[OpAxis]:
    """Transposed, with as many elements of the result for each of the input as the kernel has, and none shared."""
    if any(numbers(call.arg(7)) or (1,)):
        return
    for dim, window in _windows(call, 1, 3, (0,)):
        if window.halo == 0 and window.before == 0 and window.dilation == 1:
            for axis in op_axis(call, [(0, dim)], [(0, dim)]):
                yield OpAxis(axis.operands, axis.results, window=replace(window, inverse=True))


def _with_addend(axis: OpAxis, bias: int | None) -> OpAxis:
    if bias is None:
        return axis
    return OpAxis(axis.operands, axis.results, (Need.ADDEND,), addends=(bias,))


def _depthwise(call: Call, given: int, weight: int, groups: int) -> bool:
    """Whether each channel is convolved with a filter of its own."""
    channels, filters = operand(call, given).shape[1], operand(call, weight).shape
    return channels == filters[0] == SizeExpr.const(number(call.arg(groups), 0) or 0) and filters[1] == _ONE


def _windows(call: Call, weight: int, stride: int, operands: tuple[int, ...]) -> Iterator[tuple[int, Window]]:
    """Dims of height, width and the like, with how they are read."""
    kernel = operand(call, weight).shape[2:]
    lists = [numbers(call.arg(stride + k)) for k in range(3)]
    for k, extent in enumerate(kernel):
        if any(found is None or len(found) not in (1, len(kernel)) for found in lists):
            return
        step, before, dilation = (found[k if len(found) > 1 else 0] for found in lists if found is not None)
        padding = padding_at(call, stride + 1, k, len(kernel))
        yield k + 2, Window(extent.constant_value(), step, dilation, before, operands, padding=padding)


def _halo(window: Window) -> tuple[Need, ...]:
    return () if window.halo == 0 and window.before == 0 else (Need.HALO,)


def _convolution_backward(call: Call) -> Iterator[OpAxis]:
    """Gradients of input, weight and bias from (grad_output, input, weight, bias_sizes, stride, padding, ...)."""
    grad, given, weight = slot(call, 0), slot(call, 1), slot(call, 2)
    to_input, to_weight, to_bias = result(call, 0), result(call, 1), result(call, 2)
    added: list[tuple[int | None, int | Merge]] = [(to_weight, Merge.SUM), (to_bias, Merge.SUM)]
    yield from op_axis(call, [(grad, 0), (given, 0)], [(to_input, 0), *added])
    if call.arg(7) is not False:
        return
    if number(call.arg(9)) == 1:
        yield from op_axis(
            call,
            [(grad, 1), (weight, 0)],
            [(to_input, Merge.SUM), (to_weight, 0), (to_bias, 0)],
            sizes=(3,) if to_bias is not None else (),
        )
        if to_bias is None:
            yield from op_axis(call, [(given, 1), (weight, 1)], [(to_input, 1), (to_weight, 1)])
    elif _depthwise(call, 1, 2, 9):
        yield from op_axis(
            call,
            [(grad, 1), (given, 1), (weight, 0)],
            [(to_input, 1), (to_weight, 0), (to_bias, 0)],
            sizes=(9, 3) if to_bias is not None else (9,),
        )
    if to_input is None or grad is None:
        yield from _weight_gradient_windows(call, [(grad, 0), (given, 1)], added)
    elif to_weight is None and to_bias is None:
        yield from _input_gradient_windows(call, grad, given)
    else:
        for dim, window in _windows(call, 2, 4, (1,)):
            parallel = window.halo == 0 and window.before == 0
            for axis in op_axis(call, [(grad, dim), (given, dim)], [(to_input, dim), *added]):
                yield OpAxis(axis.operands, axis.results, window=window, whole=not parallel)


def _weight_gradient_windows(
    call: Call, here: list[tuple[int | None, int]], added: list[tuple[int | None, int | Merge]]
) -> Iterator[OpAxis]:
    """Each element of the gradient that arrives meets what its window read, and adds to all of the weight's."""
    for dim, window in _windows(call, 2, 4, (1,)):
        for axis in op_axis(call, [(s, dim) for s, _ in here], added, *_halo(window)):
            yield OpAxis(axis.operands, axis.results, axis.needs, window=window)


def _input_gradient_windows(call: Call, grad: int, given: int | None) -> Iterator[OpAxis]:
    """Without a stride, each element adds up those of the gradient that arrives whose windows read it: a window as well.

    Of the input the shape alone matters.
    """
    for dim, window in _windows(call, 2, 4, (1,)):
        reach = window.dilation * (window.kernel - 1)
        reads = replace(window, before=reach - window.before, operands=(grad,), padding_in_part=reach)
        may_overlap = window.stride == 1 and 0 <= window.before <= reach
        is_parallel = window.halo == 0 and window.before == 0
        unread = () if given is None else (given,)
        for axis in op_axis(call, [(grad, dim), (given, dim)], [(0, dim)], *_halo(reads), unread=unread):
            if may_overlap:
                yield replace(axis, window=reads)
            else:
                yield replace(axis, needs=(), window=window, whole=not is_parallel)


def _attention(call: Call) -> Iterator[OpAxis]:
    """`(query, key, value (b, h, s, d), dropout_p, is_causal, attn_mask=)` to the result and its log-sum-exp."""
    here = [(slot(call, k), k) for k in range(3)]
    yield from _attention_axes(call, here, [(0, 0), (1, 0)], [(0, 1), (1, 1)], [(0, 2), (1, 2)], causal=4)


def _attention_backward(call: Call) -> Iterator[OpAxis]:
    """`(grad_out, query, key, value, out, logsumexp, dropout_p, is_causal, attn_mask=)` to three gradients."""
    here = [(slot(call, k + 1), k) for k in range(3)]
    queries: list[tuple[int | None, int | Merge]] = [(0, 2), (1, Merge.SUM), (2, Merge.SUM)]
    yield from _attention_axes(
        call,
        here,
        [(k, 0) for k in range(3)],
        [(k, 1) for k in range(3)],
        queries,
        causal=7,
        others=(0, 4, 5),
    )


def _attention_axes(
    call: Call,
    here: list[tuple[int | None, int]],
    batches: list[tuple[int | None, int | Merge]],
    heads: list[tuple[int | None, int | Merge]],
    queries: list[tuple[int | None, int | Merge]],
    *,
    causal: int,
    others: tuple[int, ...] = (),
) -> Iterator[OpAxis]:
    """Batch, heads where query and key have as many, and queries where no mask counts them; keys are needed whole."""
    sides = [s for s, _ in here]
    query, key = sides[0], sides[1]
    mask = keyword_slot(call, "attn_mask")
    rest = [slot(call, p) for p in others]
    if query is None or key is None or len(operand(call, query).shape) != 4:
        return
    shape = (*operand(call, query).shape[:3], operand(call, key).shape[2])
    at = [None if mask is None else broadcast_dim(operand(call, mask), shape, dim) for dim in range(3)]
    masks = [[(mask, d)] if d is not None and shape[k] != _ONE else [] for k, d in enumerate(at)]
    yield from op_axis(call, [*((s, 0) for s in (*sides, *rest)), *masks[0]], batches)
    if operand(call, query).shape[1] == operand(call, key).shape[1]:
        yield from op_axis(call, [*((s, 1) for s in (*sides, *rest)), *masks[1]], heads)
    if call.arg(causal, "is_causal", default=False) is False:
        yield from op_axis(call, [*((s, 2) for s in (query, *rest)), *masks[2]], queries)
    in_place = [(k, 2) for k in range(len(call.node.outputs))]
    yield from op_axis(call, [(s, 2) for s in (*sides, *rest)], in_place, whole=True)


_TABLE = (
    Axed("mm.default", einsum("mk,kn->mn")),
    Axed("bmm.default", einsum("bmk,bkn->bmn")),
    Axed("mv.default", einsum("mk,k->m")),
    Axed("dot.default vdot.default", einsum("k,k->")),
    Axed("outer.default ger.default", einsum("m,n->mn")),
    Axed("addmm.default addmm_.default", einsum("mk,kn->mn", first=1, addend=0)),
    Axed("addmv.default addmv_.default", einsum("mk,k->m", first=1, addend=0)),
    Axed("baddbmm.default baddbmm_.default", einsum("bmk,bkn->bmn", first=1, addend=0)),
    Axed("addbmm.default addbmm_.default", einsum("bmk,bkn->mn", first=1, addend=0)),
    Axed("linear.default", AxisRow(_linear)),
    Axed("matmul.default", AxisRow(_matmul, linear=((0,), (1,)))),
    Axed("convolution.default", AxisRow(_convolution)),
    Axed("convolution_backward.default", AxisRow(_convolution_backward)),
    Axed("_scaled_dot_product_flash_attention_for_cpu.default", AxisRow(_attention)),
    Axed("_scaled_dot_product_flash_attention_for_cpu_backward.default", AxisRow(_attention_backward)),
)


def rows() -> Iterator[Axed]:
    """Dense products, convolutions, attention and their gradients."""
    yield from _TABLE
