"""Axes of operations that work element by element, and of what makes a tensor of one number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from neaptide.ir.axes import Need, OpAxis
from neaptide.ir.registry import AxisRow, Call
from neaptide.ops.axes.forms import Axed, Axes, along, pointwise, pointwise_axes
from neaptide.symbolic.size_expr import SizeExpr

_ONE = SizeExpr.const(1)

_FIRST = (0,)

_SECOND = (1,)


def _filled(call: Call) -> Iterator[OpAxis]:
    """Every dim of a tensor that is one number throughout; the operand only lends dtype and device."""
    yield from along(call, range(len(call.output().shape)), ())


def _filled_like(call: Call) -> Iterator[OpAxis]:
    yield from along(call, range(len(call.output().shape)), (0,))


def _drawn(axes: Axes) -> Axes:
    return lambda call: (replace(axis, needs=(Need.RANDOM,)) for axis in axes(call))


def _dropout_axes(call: Call) -> Iterable[OpAxis]:
    return (_drawn(pointwise_axes) if call.arg(2, "train") is not False else pointwise_axes)(call)


ROWS: Final = (
    # Terms of a sum stay terms of a sum.
    Axed(
        "add.Tensor add_.Tensor sub.Tensor sub_.Tensor rsub.Tensor subtract.Tensor subtract_.Tensor",
        pointwise((0, 1)),
    ),
    Axed("mul.Tensor mul_.Tensor multiply.Tensor multiply_.Tensor", pointwise(_FIRST, _SECOND)),
    Axed(
        """
        mul.Scalar mul_.Scalar multiply.Scalar div.Scalar,Tensor div_.Scalar,Tensor divide.Scalar,Tensor
        true_divide.Scalar,Tensor neg neg_ negative _to_copy clone lift_fresh_copy alias_copy detach_copy
        _conj_physical hardshrink_backward hardsigmoid_backward hardswish_backward hardtanh_backward
        leaky_relu_backward softshrink_backward threshold_backward sigmoid_backward tanh_backward
        elu_backward gelu_backward silu_backward mish_backward softplus_backward log_sigmoid_backward
        logit_backward native_dropout_backward
        """,
        pointwise(_FIRST),
    ),
    Axed("copy copy_", pointwise(_SECOND)),
    Axed("where.self", pointwise((1, 2))),
    Axed("to.device,dtype,dtype_layout,other type_as", pointwise(_FIRST, positions=(0,))),
    Axed("prelu where one_hot fill_.Tensor mvlgamma", AxisRow()),
    # Each element depends on its place, so what is made for a part is no part of the whole.
    Axed("arange,start,start_step linspace eye,m", AxisRow()),
    Axed("native_dropout", AxisRow(_dropout_axes)),
    Axed("zeros ones full empty.memory_format", AxisRow(_filled), shapes=(0,)),
    Axed("empty_strided", AxisRow(_filled), shapes=(0, 1)),
    Axed("new_zeros new_ones new_full new_empty", AxisRow(_filled), shapes=(1,)),
    Axed("new_empty_strided", AxisRow(_filled), shapes=(1, 2)),
    Axed("zeros_like ones_like full_like empty_like", AxisRow(_filled_like)),
    Axed("rand randn rand.generator randn.generator", AxisRow(_drawn(_filled)), shapes=(0,)),
    Axed("randint.low", AxisRow(_drawn(_filled)), shapes=(2,)),
    Axed(
        "bernoulli_.float,Tensor uniform_ normal_ normal.Tensor_Tensor exponential_",
        AxisRow(_drawn(pointwise_axes)),
    ),
    Axed("rand_like randn_like bernoulli.p,default", AxisRow(_drawn(_filled_like))),
)
