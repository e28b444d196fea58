"""Which operands a result may lie on top of: kernels that read each element before they write it, and only then.

The claim of a row: called with its own `out` exactly on top of that operand (same address, shape, strides and dtype),
or in its in-place form, the kernel computes the same bits as the functional call. Only operations are listed that have
such a form of their own; an `out` overload that PyTorch generates computes into fresh bytes and copies, which saves
nothing. Tests run every row.

What is missing here is missing on purpose: contractions and convolutions read an operand many times; softmax, norms
and reductions take several passes over it; gathers, pools and rearrangements read elements other than those they
write; dropout and other random kernels have no form that writes where it is told; `soft_margin_loss` and
`log_sigmoid` are compositions that read an operand again after the first write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from neaptide.ir.registry import OpSpec
from neaptide.ops.table import overloads

# Arguments by position.
_FIRST = """
    abs.default absolute.default acos.default acosh.default add.Scalar angle.default asin.default
    asinh.default atan.default atanh.default bitwise_and.Scalar bitwise_left_shift.Tensor_Scalar
    bitwise_not.default bitwise_or.Scalar bitwise_right_shift.Tensor_Scalar bitwise_xor.Scalar
    ceil.default celu.default clamp.default clamp_max.default clamp_min.default clip.default
    conj_physical.default copysign.Scalar cos.default cosh.default deg2rad.default digamma.default
    div.Scalar,Scalar_mode divide.Scalar,Scalar_mode elu.default eq.Scalar erf.default erfc.default
    erfinv.default exp.default exp2.default expm1.default fix.default float_power.Tensor_Scalar
    floor.default floor_divide.Scalar fmod.Scalar frac.default ge.Scalar gelu.default greater.Scalar
    greater_equal.Scalar gt.Scalar hardshrink.default hardsigmoid.default hardswish.default
    hardtanh.default i0.default isneginf.default isposinf.default le.Scalar leaky_relu.default
    less.Scalar less_equal.Scalar lgamma.default log.default log10.default log1p.default log2.default
    logical_not.default logit.default lt.Scalar masked_fill.Scalar,Tensor mish.default mul.Scalar
    multiply.Scalar nan_to_num.default ne.Scalar neg.default negative.default not_equal.Scalar
    pow.Tensor_Scalar rad2deg.default reciprocal.default relu.default relu6.default remainder.Scalar
    round.default,decimals rsqrt.default selu.default sgn.default sigmoid.default sign.default
    signbit.default silu.default sin.default sinc.default sinh.default softplus.default
    softshrink.default special_bessel_j0.default special_bessel_j1.default special_entr.default
    special_erf.default special_erfcx.default special_expit.default special_i0e.default
    special_i1.default special_i1e.default special_log_ndtr.default special_ndtr.default
    special_ndtri.default special_xlog1py.other_scalar special_zeta.other_scalar sqrt.default
    square.default sub.Scalar subtract.Scalar tan.default tanh.default threshold.default tril.default
    triu.default true_divide.Scalar trunc.default xlogy.Scalar_Other
"""
_SECOND = """
    float_power.Scalar polygamma.default pow.Scalar special_xlog1py.self_scalar special_zeta.self_scalar
    xlogy.Scalar_Self
"""
_FIRST_TWO = """
    add.Tensor atan2.default binary_cross_entropy.default bitwise_and.Tensor bitwise_left_shift.Tensor
    bitwise_or.Tensor bitwise_right_shift.Tensor bitwise_xor.Tensor clamp_max.Tensor clamp_min.Tensor
    copysign.Tensor div.Tensor,Tensor_mode divide.Tensor,Tensor_mode eq.Tensor float_power.Tensor_Tensor
    floor_divide.default fmax.default fmin.default fmod.Tensor gcd.default ge.Tensor
    gelu_backward.default greater.Tensor greater_equal.Tensor gt.Tensor hardshrink_backward.default
    hardsigmoid_backward.default hardtanh_backward.default heaviside.default huber_loss.default
    hypot.default igamma.default igammac.default lcm.default ldexp.Tensor le.Tensor
    leaky_relu_backward.default lerp.Scalar less.Tensor less_equal.Tensor logaddexp.default
    logaddexp2.default logical_and.default logical_or.default logical_xor.default logit_backward.default
    lt.Tensor max.other maximum.default min.other minimum.default mse_loss.default mul.Tensor
    multiply.Tensor ne.Tensor nextafter.default not_equal.Tensor pow.Tensor_Tensor remainder.Tensor
    sigmoid_backward.default silu_backward.default smooth_l1_loss.default softplus_backward.default
    softshrink_backward.default special_xlog1py.default special_zeta.default sub.Tensor subtract.Tensor
    tanh_backward.default threshold_backward.default true_divide.Tensor xlogy.Tensor
"""
_FIRST_THREE = """
    addcdiv.default addcmul.default binary_cross_entropy_backward.default clamp.Tensor clip.Tensor
    huber_loss_backward.default lerp.Tensor mse_loss_backward.default smooth_l1_loss_backward.default
    where.self
"""
_FIRST_AND_SIXTH = """
    elu_backward.default
"""

_TABLE: Final[Mapping[str, tuple[int, ...]]] = MappingProxyType(
    {
        overload.name: positions
        for text, positions in (
            (_FIRST, (0,)),
            (_SECOND, (1,)),
            (_FIRST_TWO, (0, 1)),
            (_FIRST_THREE, (0, 1, 2)),
            (_FIRST_AND_SIXTH, (0, 5)),
        )
        for overload in overloads(text)
    }
)


def with_in_place(rows: Iterable[OpSpec]) -> Iterator[OpSpec]:
    """The rows, told which operands their results may overwrite."""
    for row in rows:
        positions = _TABLE.get(row.name, ())
        yield replace(row, in_place=positions) if positions else row


def listed() -> tuple[str, ...]:
    """Names of all operations that may overwrite an operand, ascending."""
    return tuple(sorted(_TABLE))
