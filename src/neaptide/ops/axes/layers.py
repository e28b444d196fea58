"""Axes of matrix products, convolutions, attention, recurrent layers, matrix decompositions, transforms and distances."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from neaptide.ir.axes import Merge, Need, OpAxis, Window
from neaptide.ir.registry import AxisRow, Call
from neaptide.ops.axes.forms import (
    Axed,
    all_but,
    argument_dims,
    broadcast_dim,
    einsum,
    keyword_slot,
    number,
    numbers,
    op_axis,
    operand,
    padding_at,
    product_axes,
    result,
    same_dims,
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


def _convolution(call: Call) -> Iterator[OpAxis]:
    """`convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)`."""
    given, weight, bias = slot(call, 0), slot(call, 1), slot(call, 2)
    yield from op_axis(call, [(given, 0)], [(0, 0)])
    if call.arg(6) is not False:
        yield from _unfolded(call)
        return
    if number(call.arg(8)) == 1:
        yield from op_axis(call, [(weight, 0), (bias, 0)], [(0, 1)])
        added = ((), {}) if bias is None else ((Need.ADDEND,), {"addends": (bias,)})
        yield from op_axis(call, [(given, 1), (weight, 1)], [(0, Merge.SUM)], *added[0], **added[1])
    elif _depthwise(call, 0, 1, 8):
        yield from op_axis(call, [(given, 1), (weight, 0), (bias, 0)], [(0, 1)], sizes=(8,))
    for dim, window in _windows(call, 1, 3, (0,)):
        yield from op_axis(call, [(given, dim)], [(0, dim)], *_halo(window), window=window)


def _unfolded(call: Call) -> Iterator[OpAxis]:
    """Transposed, with as many elements of the result for each of the input as the kernel has, and none shared."""
    if any(numbers(call.arg(7)) or (1,)):
        return
    for dim, window in _windows(call, 1, 3, (0,)):
        if window.halo == 0 and window.before == 0 and window.dilation == 1:
            yield from op_axis(call, [(0, dim)], [(0, dim)], window=replace(window, inverse=True))


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


def _overlaps(window: Window) -> bool:
    return window.halo != 0 or window.before != 0


def _halo(window: Window) -> tuple[Need, ...]:
    return (Need.HALO,) if _overlaps(window) else ()


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
        yield from _weight_gradient_windows(call, (grad, given), added)
    elif to_weight is None and to_bias is None:
        yield from _input_gradient_windows(call, grad, given)
    else:
        for dim, window in _windows(call, 2, 4, (1,)):
            both = [(grad, dim), (given, dim)]
            yield from op_axis(call, both, [(to_input, dim), *added], window=window, whole=_overlaps(window))


def _weight_gradient_windows(
    call: Call, here: tuple[int | None, int | None], added: list[tuple[int | None, int | Merge]]
) -> Iterator[OpAxis]:
    """Each element of the gradient that arrives meets what its window read, and adds to all of the weight's."""
    for dim, window in _windows(call, 2, 4, (1,)):
        yield from op_axis(call, [(s, dim) for s in here], added, *_halo(window), window=window)


def _input_gradient_windows(call: Call, grad: int, given: int | None) -> Iterator[OpAxis]:
    """Without a stride, each element adds up those of the gradient that arrives whose windows read it: a window as well.

    Of the input the shape alone matters.
    """
    for dim, window in _windows(call, 2, 4, (1,)):
        reach = window.dilation * (window.kernel - 1)
        reads = replace(window, before=reach - window.before, operands=(grad,), padding_in_part=reach)
        may_overlap = window.stride == 1 and 0 <= window.before <= reach
        both = [(grad, dim), (given, dim)]
        if may_overlap:
            yield from op_axis(call, both, [(0, dim)], *_halo(reads), unread=(given,), window=reads)
        else:
            whole = _overlaps(window)
            yield from op_axis(call, both, [(0, dim)], unread=(given,), window=window, whole=whole)


def _attention(call: Call) -> Iterator[OpAxis]:
    """`(query, key, value (b, h, s, d), dropout_p, is_causal, attn_mask=)` to the result and its log-sum-exp."""
    yield from _attention_axes(call, 0, [(0, 2), (1, 2)], causal=4)


def _attention_backward(call: Call) -> Iterator[OpAxis]:
    """`(grad_out, query, key, value, out, logsumexp, dropout_p, is_causal, attn_mask=)` to three gradients."""
    queries: list[tuple[int | None, int | Merge]] = [(0, 2), (1, Merge.SUM), (2, Merge.SUM)]
    yield from _attention_axes(call, 1, queries, causal=7, others=(0, 4, 5))


def _attention_axes(
    call: Call,
    first: int,
    queries: list[tuple[int | None, int | Merge]],
    *,
    causal: int,
    others: tuple[int, ...] = (),
) -> Iterator[OpAxis]:
    """Batch, heads where query and key have as many, and queries where no mask counts them; keys are needed whole.

    `first` is the position of the query; `queries` says how the results lie along them.
    """
    sides = [slot(call, first + k) for k in range(3)]
    query, key = sides[0], sides[1]
    mask = keyword_slot(call, "attn_mask")
    rest = [slot(call, p) for p in others]
    if query is None or key is None or len(operand(call, query).shape) != 4:
        return
    shape = (*operand(call, query).shape[:3], operand(call, key).shape[2])
    at = [None if mask is None else broadcast_dim(operand(call, mask), shape, dim) for dim in range(3)]
    masks = [[(mask, d)] if d is not None and shape[k] != _ONE else [] for k, d in enumerate(at)]
    outs = range(len(queries))
    yield from op_axis(call, [*((s, 0) for s in (*sides, *rest)), *masks[0]], [(k, 0) for k in outs])
    if operand(call, query).shape[1] == operand(call, key).shape[1]:
        yield from op_axis(call, [*((s, 1) for s in (*sides, *rest)), *masks[1]], [(k, 1) for k in outs])
    if call.arg(causal, "is_causal", default=False) is False:
        yield from op_axis(call, [*((s, 2) for s in (query, *rest)), *masks[2]], queries)
    in_place = [(k, 2) for k in range(len(call.node.outputs))]
    yield from op_axis(call, [(s, 2) for s in (*sides, *rest)], in_place, whole=True)


_BATCH_SIZES = ()  # of a packed sequence there is one for each step


def _recurrent(
    sequences: tuple[int, ...],
    states: tuple[int, ...],
    made: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]],
    packing: int,
    *,
    given_workspace: int | None = None,
    made_workspace: tuple[int, ...] = (),
) -> AxisRow:
    """A recurrent layer: positions of arguments (time, batch, width) and (..., batch, width), results that are such, and those to
    which each sequence of a batch adds a term; and of the argument that says which sequences a step has.

    Sequences of a batch are independent of one another, steps of a sequence are not. A layer hands a workspace from forward
    to backward, in a form of the library's own, that nobody could cut: what the forward makes of a part, the backward of the
    same part reads.
    """
    made_sequences, made_states, summed = made

    def axes(call: Call) -> Iterator[OpAxis]:
        """The batch, and time, which is needed whole."""
        if len(call.node.outputs) != sum(map(len, (*made, made_workspace))):
            return
        here = [s for p in sequences if (s := slot(call, p)) is not None]
        held = [s for p in states if (s := slot(call, p)) is not None]
        given = None if given_workspace is None else slot(call, given_workspace)
        both = [*((s, 1) for s in here), *((s, len(operand(call, s).shape) - 2) for s in held)]
        parts: list[tuple[int | None, int | Merge]] = [(k, 1) for k in made_sequences]
        parts += [(k, len(call.output(k).shape) - 2) for k in made_states]
        parts += [(k, Merge.SUM) for k in summed]
        parts += [(k, Merge.OWN) for k in made_workspace]
        own, is_packed = () if given is None else (given,), call.arg(packing) != _BATCH_SIZES
        yield from op_axis(call, both, parts, whole=is_packed, private=made_workspace, own=own)
        times: list[tuple[int | None, int | Merge]] = [(k, 0) for k in made_sequences]
        times += [(k, Merge.SAME) for k in (*made_states, *summed, *made_workspace)]
        yield from op_axis(call, [(s, 0) for s in here], times, whole=True)

    return AxisRow(axes)


# (input, weights x 4, hx, cx, reverse, batch_sizes, ...) to the result, both states and the workspace.
_LAYER = _recurrent((0,), (5, 6), ((0,), (1, 2), ()), 8, made_workspace=(3,))
# (input, weights x 4, hx, cx, output, hy, cy, grad_output, grad_hy, grad_cy, reverse, mode, hidden_size, num_layers,
# has_biases, train, bidirectional, batch_sizes, batch_first, workspace) to gradients in the order of the operands.
_BACKWARD = _recurrent((0, 7, 10), (5, 6, 8, 9, 11, 12), ((0,), (5, 6), (1, 2, 3, 4)), 20, given_workspace=22)


_FIRST = (0,)


def _batch_of_matrices(call: Call) -> Iterator[OpAxis]:
    """Dims in front of the last two of the first operand, which all others and all results begin with."""
    values = [*call.inputs(), *call.outputs()]
    lead = values[0].shape[:-2]
    if any(value.shape[: len(lead)] != lead for value in values):
        return
    for dim in range(len(lead)):
        everywhere = [(s, dim) for s in range(len(call.node.inputs))]
        yield from op_axis(call, everywhere, [(k, dim) for k in range(len(call.node.outputs))])


def _distances(call: Call) -> Iterator[OpAxis]:
    """`(x1 (..., p, m), x2 (..., r, m), p, compute_mode)` to the distances (..., p, r); x1 and x2 may be one value."""
    first, second = slot(call, 0), slot(call, 1)
    rank = len(call.output().shape)
    if not _same_batch(call):
        return
    for dim in range(rank - 2):
        yield from op_axis(call, [(first, dim), (second, dim)], [(0, dim)])
    if first != second:
        yield from op_axis(call, [(first, rank - 2)], [(0, rank - 2)])
        yield from op_axis(call, [(second, rank - 2)], [(0, rank - 1)])


def _distances_backward(call: Call) -> Iterator[OpAxis]:
    """`(grad (..., p, r), x1 (..., p, m), x2 (..., r, m), p, cdist (..., p, r))` to the gradient of x1."""
    grad, first, second, known = (slot(call, position) for position in (0, 1, 2, 4))
    rank = len(call.output().shape)
    if not _same_batch(call):
        return
    for dim in range(rank - 2):
        yield from op_axis(call, [(s, dim) for s in (grad, first, second, known)], [(0, dim)])
    rows, columns = rank - 2, rank - 1
    if first != second:
        yield from op_axis(call, [(grad, rows), (first, rows), (known, rows)], [(0, rows)])
        yield from op_axis(call, [(grad, columns), (second, rows), (known, columns)], [(0, Merge.SUM)])
    yield from op_axis(call, [(first, columns), (second, columns)], [(0, columns)])


def _same_batch(call: Call) -> bool:
    """Whether all operands have the dims of the result in front of the last two."""
    made = call.output().shape
    return all(len(v.shape) == len(made) and v.shape[:-2] == made[:-2] for v in call.inputs())


def _weight_norm(call: Call) -> Iterator[OpAxis]:
    """The dim that has a norm of its own for each element, in every operand and result."""
    yield from same_dims(call, range(len(call.node.inputs)), range(len(call.node.outputs)), ())


ROWS: Final = (
    Axed("mm", einsum("mk,kn->mn")),
    Axed("bmm", einsum("bmk,bkn->bmn")),
    Axed("mv", einsum("mk,k->m")),
    Axed("dot vdot", einsum("k,k->")),
    Axed("outer ger", einsum("m,n->mn")),
    Axed("addmm addmm_", einsum("mk,kn->mn", first=1, addend=0)),
    Axed("addmv addmv_", einsum("mk,k->m", first=1, addend=0)),
    Axed("baddbmm baddbmm_", einsum("bmk,bkn->bmn", first=1, addend=0)),
    Axed("addbmm addbmm_", einsum("bmk,bkn->mn", first=1, addend=0)),
    Axed("linear", AxisRow(_linear)),
    Axed("matmul", AxisRow(product_axes, linear=((0,), (1,)))),
    Axed("convolution", AxisRow(_convolution)),
    Axed("convolution_backward", AxisRow(_convolution_backward)),
    Axed("_scaled_dot_product_flash_attention_for_cpu", AxisRow(_attention)),
    Axed("_scaled_dot_product_flash_attention_for_cpu_backward", AxisRow(_attention_backward)),
    Axed("mkldnn_rnn_layer", _LAYER),
    Axed("mkldnn_rnn_layer_backward", _BACKWARD),
    Axed(
        """
        linalg_cholesky_ex cholesky_solve linalg_solve_triangular linalg_lu_solve _linalg_solve_ex
        linalg_inv_ex linalg_qr _linalg_svd _linalg_eigh _linalg_slogdet linalg_matrix_exp
        """,
        AxisRow(_batch_of_matrices),
    ),
    Axed("_fft_r2c _fft_c2r _fft_c2c", all_but(argument_dims(1), _FIRST)),
    Axed("_cdist_forward", AxisRow(_distances)),
    Axed("_cdist_backward", AxisRow(_distances_backward, linear=(_FIRST,))),
    Axed("_weight_norm_interface _weight_norm_interface_backward", AxisRow(_weight_norm)),
)
