"""Axes of operations that work element by element, and of what makes a tensor of one number."""

from __future__ import annotations

from collections.abc import Iterator

from neaptide.ir.axes import Need, OpAxis
from neaptide.ir.nodes import ADD_OP, COPY_OP, PUT_OP
from neaptide.ir.registry import AxisRow, Call
from neaptide.ops.axes_forms import Axed, Axes, op_axis, pointwise
from neaptide.ops.structural import CONSTANT_OP
from neaptide.symbolic.size_expr import SizeExpr

_ONE = SizeExpr.const(1)
_FIRST = (0,)
_SECOND = (1,)


def _filled(call: Call) -> Iterator[OpAxis]:
    """Every dim of a tensor that is one number throughout; the operand only lends dtype and device."""
    for dim, extent in enumerate(call.output().shape):
        if extent != _ONE:
            yield from op_axis(call, [], [(0, dim)])


def _filled_like(call: Call) -> Iterator[OpAxis]:
    for dim, extent in enumerate(call.output().shape):
        if extent != _ONE:
            yield from op_axis(call, [(0, dim)], [(0, dim)])


def _pointwise_axes(call: Call) -> Iterator[OpAxis]:
    axes = pointwise().axes
    assert axes is not None
    yield from axes(call)


def _drawn(axes: Axes) -> Axes:
    def drawn(call: Call) -> Iterator[OpAxis]:
        for axis in axes(call):
            yield OpAxis(axis.operands, axis.results, (Need.RANDOM,))

    return drawn


def _dropout_axes(call: Call) -> Iterator[OpAxis]:
    draws = call.arg(2, "train") is not False
    yield from (_drawn(_pointwise_axes) if draws else _pointwise_axes)(call)


_BOTH = (0, 1)

_TABLE = (
    # Terms of a sum stay terms of a sum.
    Axed(
        "add.Tensor add_.Tensor sub.Tensor sub_.Tensor rsub.Tensor subtract.Tensor subtract_.Tensor",
        pointwise(_BOTH),
    ),
    Axed(
        "mul.Tensor mul_.Tensor multiply.Tensor multiply_.Tensor",
        pointwise(_FIRST, _SECOND),
    ),
    Axed(
        """
        mul.Scalar mul_.Scalar multiply.Scalar div.Scalar,Tensor div_.Scalar,Tensor divide.Scalar,Tensor
        true_divide.Scalar,Tensor neg.default neg_.default negative.default _to_copy.default clone.default
        lift_fresh_copy.default alias_copy.default detach_copy.default _conj_physical.default
        hardshrink_backward.default hardsigmoid_backward.default hardswish_backward.default
        hardtanh_backward.default leaky_relu_backward.default softshrink_backward.default
        threshold_backward.default sigmoid_backward.default tanh_backward.default elu_backward.default
        gelu_backward.default silu_backward.default mish_backward.default softplus_backward.default
        log_sigmoid_backward.default logit_backward.default native_dropout_backward.default
        """,
        pointwise(_FIRST),
    ),
    Axed("copy.default copy_.default", pointwise(_SECOND)),
    Axed("where.self", pointwise((1, 2))),
    Axed(
        "to.device,dtype,dtype_layout,other type_as.default",
        pointwise(_FIRST, positions=(0,)),
    ),
    Axed("prelu.default where.default one_hot.default fill_.Tensor mvlgamma.default", AxisRow()),
    # Each element depends on its place, so what is made for a part is no part of the whole.
    Axed("arange.default,start,start_step linspace.default eye.default,m", AxisRow()),
    Axed("native_dropout.default", AxisRow(_dropout_axes)),
    Axed("zeros.default ones.default full.default empty.memory_format", AxisRow(_filled), shapes=(0,)),
    Axed("empty_strided.default", AxisRow(_filled), shapes=(0, 1)),
    Axed(
        "new_zeros.default new_ones.default new_full.default new_empty.default",
        AxisRow(_filled),
        shapes=(1,),
    ),
    Axed("new_empty_strided.default", AxisRow(_filled), shapes=(1, 2)),
    Axed("zeros_like.default ones_like.default full_like.default empty_like.default", AxisRow(_filled_like)),
    Axed(
        "rand.default randn.default rand.generator randn.generator",
        AxisRow(_drawn(_filled)),
        shapes=(0,),
    ),
    Axed("randint.low", AxisRow(_drawn(_filled)), shapes=(2,)),
    Axed(
        "bernoulli_.float,Tensor uniform_.default normal_.default normal.Tensor_Tensor exponential_.default",
        AxisRow(_drawn(_pointwise_axes)),
    ),
    Axed("rand_like.default randn_like.default bernoulli.p,default", AxisRow(_drawn(_filled_like))),
    Axed(f"{CONSTANT_OP.partition('.')[2]}.", AxisRow(), namespace="neaptide"),
    Axed(f"{COPY_OP.partition('.')[2]}.", pointwise(_FIRST), namespace="neaptide"),
    Axed(f"{PUT_OP.partition('.')[2]}.", pointwise(), namespace="neaptide"),
    # Each part adds its own term to what is handed over whole.
    Axed(f"{ADD_OP.partition('.')[2]}.", pointwise(_SECOND), namespace="neaptide"),
)


def rows() -> Iterator[Axed]:
    """Those with more to say than that they work element by element, and factories."""
    yield from _TABLE
