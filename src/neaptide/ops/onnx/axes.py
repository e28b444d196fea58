"""Axes of ONNX operators: batch, channels, hidden channels, rows and columns; one row for each operator, by its type.

Facts of the ONNX operator schemas. An axis that lies in weights alone on the way in, and in the channels of the result, is a
split of output channels; an axis of channels that a convolution or a product adds up makes terms of a sum. Both need no halo
and no work twice (partial execution: Liberis and Lane, "Pex", arXiv 2211.17246). Numbers of operands (the starts of a Slice,
the widths of a Pad) are not known here, so operators that need them have no axes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Final

from neaptide.ir.axes import Merge, Need, OpAxis, Window
from neaptide.ir.nodes import Arg
from neaptide.ir.registry import AxisRow, Call, OpSpec, Trait
from neaptide.ops.axes.forms import (
    broadcast_dim,
    dim_of,
    moved,
    number,
    numbers,
    op_axis,
    operand,
    pointwise,
    pointwise_axes,
    product_axes,
    same_dims,
    slot,
)
from neaptide.ops.onnx.windows import WindowForm, window_forms
from neaptide.symbolic.size_expr import SizeExpr

_ONE = SizeExpr.const(1)


def _kwarg(call: Call, name: str, default: Arg = None) -> Arg:
    return call.node.kwarg(name, default)


def _version(call: Call) -> int:
    return int(call.node.op.rpartition(".")[2])


def _spatial(call: Call, given: int, forms: Iterable[WindowForm] | None, fill: float) -> Iterator[OpAxis]:
    """Height, width and the like, as windows read them; nothing where windows are not known."""
    for k, form in enumerate(forms or ()):
        window = Window(form.kernel, form.stride, form.dilation, form.before, (given,), fill=fill)
        yield from op_axis(call, [(given, k + 2)], [(0, k + 2)], Need.HALO, window=window)


def _convolution(
    call: Call, weight: int = 1, bias: int = 2, beside: tuple[int, ...] = ()
) -> Iterator[OpAxis]:
    """`Conv(X, W, B)`; `beside` are positions of operands that have an element for each output channel, or one."""
    given, filters, added = slot(call, 0), slot(call, weight), slot(call, bias)
    if given is None or filters is None:
        return
    group = number(_kwarg(call, "group"), 1)
    per_filter: list[tuple[int | None, int]] = [(filters, 0), (added, 0)]
    for position in beside:
        where = slot(call, position)
        if where is not None and operand(call, where).numel != _ONE:
            per_filter.append((where, 0))
    yield from op_axis(call, [(given, 0)], [(0, 0)])
    if group == 1:
        yield from op_axis(call, per_filter, [(0, 1)])
        needs = () if added is None else (Need.ADDEND,)
        addends = () if added is None else (added,)
        if not beside:  # a sum of rounded terms is no rounded sum
            inside = [(given, 1), (filters, 1)]
            yield from op_axis(call, inside, [(0, Merge.SUM)], *needs, addends=addends)
    elif operand(call, given).shape[1] == operand(call, filters).shape[0] == SizeExpr.const(group or 0):
        yield from op_axis(call, [(given, 1), *per_filter], [(0, 1)], sizes=("group",))
    yield from _spatial(call, given, window_forms(call, operand(call, filters).shape[2:]), 0.0)


def _transposed_convolution(call: Call) -> Iterator[OpAxis]:
    """`ConvTranspose(X, W, B)`; rows and columns only where windows neither overlap nor skip."""
    given, filters, added = slot(call, 0), slot(call, 1), slot(call, 2)
    if given is None or filters is None:
        return
    yield from op_axis(call, [(given, 0)], [(0, 0)])
    if number(_kwarg(call, "group"), 1) != 1:
        return
    yield from op_axis(call, [(filters, 1), (added, 0)], [(0, 1)])
    needs = () if added is None else (Need.ADDEND,)
    addends = () if added is None else (added,)
    yield from op_axis(call, [(given, 1), (filters, 0)], [(0, Merge.SUM)], *needs, addends=addends)
    kernel = operand(call, filters).shape[2:]
    shape, made = operand(call, given).shape, call.output().shape
    for k, extent in enumerate(kernel):
        steps = numbers(_kwarg(call, "strides")) or (1,) * len(kernel)
        if SizeExpr.const(steps[k]) == extent and made[k + 2] == shape[k + 2] * steps[k]:
            window = Window(steps[k], steps[k], operands=(given,), inverse=True)
            yield from op_axis(call, [(given, k + 2)], [(0, k + 2)], window=window)


def _pool(call: Call, fill: float) -> Iterator[OpAxis]:
    """`MaxPool(X)`, `AveragePool(X)`: what a window reads beyond the edge counts nothing, or as zero."""
    kernel = numbers(_kwarg(call, "kernel_shape"))
    for dim in (0, 1):
        if len(call.node.outputs) == 1:
            yield from op_axis(call, [(0, dim)], [(0, dim)])
    if kernel and len(call.node.outputs) == 1 and not number(_kwarg(call, "ceil_mode"), 0):
        yield from _spatial(call, 0, window_forms(call, tuple(map(SizeExpr.const, kernel))), fill)


def _leading(call: Call, count: int = 2) -> Iterator[OpAxis]:
    """The first dims, which lie in the first operand and the result."""
    for dim in range(count):
        yield from op_axis(call, [(0, dim)], [(0, dim)])


def _per_channel(call: Call, positions: tuple[int, ...], *, spatial: bool) -> Iterator[OpAxis]:
    """Normalisation with numbers for each channel at some positions; rows and columns too where statistics are given."""
    if len(call.node.outputs) != 1:
        return
    beside = [(slot(call, position), 0) for position in positions]
    yield from op_axis(call, [(0, 0)], [(0, 0)])
    yield from op_axis(call, [(0, 1), *beside], [(0, 1)])
    for dim in range(2, len(call.output().shape) if spatial else 2):
        yield from op_axis(call, [(0, dim)], [(0, dim)])


def _in_front_of_axis(call: Call, default: int) -> Iterator[OpAxis]:
    """Dims in front of the attribute `axis`: `LayerNormalization`, old forms of `Softmax`."""
    rank = len(call.inputs()[0].shape)
    axis = dim_of(_kwarg(call, "axis", default), rank)
    if axis is not None and len(call.node.outputs) == 1:
        yield from _leading(call, axis)


def _softmax(call: Call) -> Iterator[OpAxis]:
    """All dims but `axis`; before version 13 that axis and all behind it are one."""
    if _version(call) < 13:
        yield from _in_front_of_axis(call, 1)
        return
    axis = dim_of(_kwarg(call, "axis", -1), len(call.inputs()[0].shape))
    if axis is not None:
        yield from same_dims(call, (0,), (0,), (axis,))


def _reduced(call: Call, how: Merge | None) -> Iterator[OpAxis]:
    """Reductions, by shapes: dims that are kept; of a sum, the least or the greatest also those that go."""
    given, made = call.inputs()[0].shape, call.output().shape
    if len(given) != len(made):
        return
    for dim, extent in enumerate(given):
        if extent == made[dim] != _ONE:
            yield from op_axis(call, [(0, dim)], [(0, dim)])
        elif extent != _ONE and how is not None:
            yield from op_axis(call, [(0, dim)], [(0, how)])


def _joined(call: Call) -> Iterator[OpAxis]:
    """`Concat`: all dims but the one along which its operands lie."""
    axis = dim_of(_kwarg(call, "axis", 1), len(call.output().shape))
    if axis is not None:
        for dim in range(len(call.output().shape)):
            if dim != axis:
                everywhere = [(s, dim) for s in range(len(call.node.inputs))]
                yield from op_axis(call, everywhere, [(0, dim)])


def _split(call: Call) -> Iterator[OpAxis]:
    """`Split`: all dims but the one that it cuts."""
    rank = len(call.inputs()[0].shape)
    axis = dim_of(_kwarg(call, "axis", 0), rank)
    for dim in range(rank):
        if axis is not None and dim != axis:
            yield from op_axis(call, [(0, dim)], [(k, dim) for k in range(len(call.node.outputs))])


def _permuted(call: Call) -> Mapping[int, int] | None:
    rank = len(call.inputs()[0].shape)
    order = numbers(_kwarg(call, "perm")) or tuple(reversed(range(rank)))
    return {dim: at for at, dim in enumerate(order)} if len(order) == rank else None


def _gemm(call: Call) -> Iterator[OpAxis]:
    """`Gemm(A, B, C)`: alpha * A' @ B' + beta * C, where C may be left out since version 11."""
    left, right, added = slot(call, 0), slot(call, 1), slot(call, 2)
    if left is None or right is None or left == right:
        return
    turned_a, turned_b = (number(_kwarg(call, name), 0) for name in ("transA", "transB"))
    made, addend = call.output().shape, None if added is None else operand(call, added)

    def beside(dim: int) -> list[tuple[int | None, int]]:
        at = None if addend is None else broadcast_dim(addend, made, dim)
        return [] if at is None else [(added, at)]

    yield from op_axis(call, [(left, 1 if turned_a else 0), *beside(0)], [(0, 0)])
    yield from op_axis(call, [(right, 0 if turned_b else 1), *beside(1)], [(0, 1)])
    inside = [(left, 0 if turned_a else 1), (right, 1 if turned_b else 0)]
    if added is None:
        yield from op_axis(call, inside, [(0, Merge.SUM)])
    elif _version(call) >= 11:
        yield from op_axis(call, inside, [(0, Merge.SUM)], Need.ADDEND, addends=(added,))


def _resized(call: Call) -> Iterator[OpAxis]:
    """`Resize`, `Upsample`: batch and channels, and of the nearest element rows that are each made a whole number of times."""
    shape, made = call.inputs()[0].shape, call.output().shape
    for dim, extent in enumerate(shape):
        if extent == made[dim]:
            yield from op_axis(call, [(0, dim)], [(0, dim)])
        elif _kwarg(call, "mode", "nearest") == "nearest" and (times := _times(call, extent, made[dim])):
            window = Window(times, times, inverse=True)
            yield from op_axis(call, [(0, dim)], [(0, dim)], window=window)


def _times(call: Call, extent: SizeExpr, made: SizeExpr) -> int:
    """How often the nearest element is made, where the coordinates are those of whole times; else 0."""
    where = _kwarg(call, "coordinate_transformation_mode", "half_pixel")
    plain = (where == "asymmetric" and _kwarg(call, "nearest_mode", "round_prefer_floor") == "floor") or (
        where == "half_pixel" and _kwarg(call, "nearest_mode", "round_prefer_floor") == "round_prefer_floor"
    )
    if call.node.op.startswith("onnx.Upsample.") or _version(call) == 10:
        plain = True
    times = made // extent
    is_whole = plain and times.is_constant and times * extent == made
    return times.constant_value() if is_whole else 0


def _quantised(call: Call) -> Iterator[OpAxis]:
    """`QuantizeLinear`, `DequantizeLinear`: all dims where one scale is for all, else with a scale for each element of one."""
    scale, zero = slot(call, 1), slot(call, 2)
    if scale is None:
        return
    if operand(call, scale).numel == _ONE:
        yield from pointwise_axes(call, (0,))
        return
    axis = dim_of(_kwarg(call, "axis", 1), len(call.output().shape))
    if axis is None or number(_kwarg(call, "block_size"), 0) or len(operand(call, scale).shape) != 1:
        return
    for dim in range(len(call.output().shape)):
        beside = [(scale, 0), (zero, 0)] if dim == axis else []
        yield from op_axis(call, [(0, dim), *beside], [(0, dim)])


def _squeezed(call: Call) -> Mapping[int, int] | None:
    """Dims by dims of what has dims of one element more or less; none where elements are regrouped."""
    here, made = ([d for d, e in enumerate(v.shape) if e != _ONE] for v in (call.inputs()[0], call.output()))
    given, out = call.inputs()[0].shape, call.output().shape
    is_same = [given[d] for d in here] == [out[d] for d in made]
    return dict(zip(here, made, strict=True)) if is_same else None


_POINTWISE: Final = pointwise()
_REGROUPED: Final = AxisRow(regroups=True)

AXES: Final[Mapping[str, AxisRow]] = MappingProxyType(
    {
        "onnx.Conv": AxisRow(_convolution, linear=((0,), (1,))),
        "onnx.QLinearConv": AxisRow(partial(_convolution, weight=3, bias=8, beside=(4, 5))),
        "onnx.ConvTranspose": AxisRow(_transposed_convolution),
        "onnx.MatMul": AxisRow(product_axes, linear=((0,), (1,))),
        "onnx.MatMulInteger": AxisRow(product_axes),
        "onnx.QLinearMatMul": AxisRow(partial(product_axes, right=3, sums=False)),
        "onnx.Gemm": AxisRow(_gemm),
        "onnx.MaxPool": AxisRow(partial(_pool, fill=-math.inf)),
        "onnx.AveragePool": AxisRow(partial(_pool, fill=0.0)),
        "onnx.GlobalAveragePool": AxisRow(_leading),
        "onnx.GlobalMaxPool": AxisRow(_leading),
        "onnx.BatchNormalization": AxisRow(partial(_per_channel, positions=(1, 2, 3, 4), spatial=True)),
        "onnx.InstanceNormalization": AxisRow(partial(_per_channel, positions=(1, 2), spatial=False)),
        "onnx.LayerNormalization": AxisRow(partial(_in_front_of_axis, default=-1)),
        "onnx.Softmax": AxisRow(_softmax),
        "onnx.LogSoftmax": AxisRow(_softmax),
        "onnx.ReduceMean": AxisRow(partial(_reduced, how=None)),
        "onnx.ReduceL2": AxisRow(partial(_reduced, how=None)),
        "onnx.ReduceSum": AxisRow(partial(_reduced, how=Merge.SUM)),
        "onnx.ReduceMax": AxisRow(partial(_reduced, how=Merge.MAX)),
        "onnx.ReduceMin": AxisRow(partial(_reduced, how=Merge.MIN)),
        "onnx.Concat": AxisRow(_joined),
        "onnx.Split": AxisRow(_split),
        "onnx.Transpose": moved(_permuted),
        "onnx.Flatten": _REGROUPED,
        "onnx.Reshape": AxisRow(regroups=True, shapes=(1,)),
        "onnx.Squeeze": moved(_squeezed),
        "onnx.Unsqueeze": moved(_squeezed),
        "onnx.Resize": AxisRow(_resized),
        "onnx.Upsample": AxisRow(_resized),
        "onnx.QuantizeLinear": AxisRow(_quantised),
        "onnx.DequantizeLinear": AxisRow(_quantised),
        "com_microsoft.QLinearAdd": AxisRow(partial(pointwise_axes, positions=(0, 3))),
        "onnx.PRelu": _POINTWISE,
    }
)
"""Rows by domain and type. What has the trait of an element-wise operation and no row here runs in parts along every axis."""


def with_onnx_axes(row: OpSpec) -> OpSpec:
    """A row, told along which axes its operator runs in parts; the row as it is where every axis is needed whole."""
    axes = AXES.get(row.name.rpartition(".")[0])
    if axes is None and row.is_a(Trait.ELEMENTWISE) and not row.rng:
        axes = _POINTWISE
    return row if axes is None else replace(row, axes=axes)
