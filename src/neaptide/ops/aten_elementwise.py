"""ATen ops that work element by element, with broadcasting: arithmetic, comparisons, transcendental functions."""

from __future__ import annotations

from collections.abc import Iterator

from neaptide.ir.registry import OpSpec, Trait
from neaptide.ops.formulas import per_output
from neaptide.ops.table import declare

# One arithmetic operation per element.
_ARITHMETIC = """
    abs.default,out abs_.default add.Scalar,Scalar_out,Tensor,out add_.Scalar,Tensor
    bitwise_and.Scalar,Scalar_Tensor,Scalar_Tensor_out,Scalar_out,Tensor,Tensor_out
    bitwise_and_.Scalar,Tensor
    bitwise_left_shift.Scalar_Tensor,Scalar_Tensor_out,Tensor,Tensor_Scalar,Tensor_Scalar_out,Tensor_out
    bitwise_left_shift_.Tensor,Tensor_Scalar bitwise_not.default,out bitwise_not_.default
    bitwise_or.Scalar,Scalar_Tensor,Scalar_Tensor_out,Scalar_out,Tensor,Tensor_out
    bitwise_or_.Scalar,Tensor
    bitwise_right_shift.Scalar_Tensor,Scalar_Tensor_out,Tensor,Tensor_Scalar,Tensor_Scalar_out,Tensor_out
    bitwise_right_shift_.Tensor,Tensor_Scalar
    bitwise_xor.Scalar,Scalar_Tensor,Scalar_Tensor_out,Scalar_out,Tensor,Tensor_out
    bitwise_xor_.Scalar,Tensor ceil.default,out ceil_.default clamp.default,Tensor,Tensor_out,out
    clamp_.default,Tensor clamp_max.default,Tensor,Tensor_out,out clamp_max_.default,Tensor
    clamp_min.default,Tensor,Tensor_out,out clamp_min_.default,Tensor
    copysign.Scalar,Scalar_out,Tensor,out copysign_.Scalar,Tensor
    div.Scalar,Scalar_mode,Scalar_mode_out,Scalar_out,Tensor,Tensor_mode,out,out_mode=out
    div_.Scalar,Scalar_mode,Tensor,Tensor_mode eq.Scalar,Scalar_out,Tensor,Tensor_out eq_.Scalar,Tensor
    floor.default,out floor_.default floor_divide.default,Scalar,Scalar_out,out
    floor_divide_.Scalar,Tensor fmax.default,out fmin.default,out fmod.Scalar,Scalar_out,Tensor,Tensor_out
    fmod_.Scalar,Tensor frac.default,out frac_.default ge.Scalar,Scalar_out,Tensor,Tensor_out
    ge_.Scalar,Tensor gt.Scalar,Scalar_out,Tensor,Tensor_out gt_.Scalar,Tensor
    le.Scalar,Scalar_out,Tensor,Tensor_out le_.Scalar,Tensor logical_and.default,out logical_and_.default
    logical_not.default,out logical_not_.default logical_or.default,out logical_or_.default
    logical_xor.default,out logical_xor_.default lt.Scalar,Scalar_out,Tensor,Tensor_out lt_.Scalar,Tensor
    maximum.default,out minimum.default,out mul.Scalar,Scalar_out,Tensor,out mul_.Scalar,Tensor
    ne.Scalar,Scalar_out,Tensor,Tensor_out ne_.Scalar,Tensor neg.default,out neg_.default
    negative.default,out negative_.default nextafter.default,out nextafter_.default reciprocal.default,out
    reciprocal_.default relu.default,out relu_.default
    remainder.Scalar,Scalar_Tensor,Scalar_Tensor_out,Scalar_out,Tensor,Tensor_out remainder_.Scalar,Tensor
    round.default,decimals,decimals_out,out round_.default,decimals
    rsub.Scalar,Scalar_out,Tensor,Tensor_out sgn.default,out sgn_.default sign.default,out sign_.default
    signbit.default,out sqrt.default,out sqrt_.default square.default,out square_.default
    sub.Scalar,Scalar_out,Tensor,out sub_.Scalar,Tensor threshold.default,out threshold_.default
    trunc.default,out trunc_.default isinf.default,out isnan.default,out isneginf.default,out
    isposinf.default,out isfinite.default heaviside.default,out heaviside_.default nan_to_num.default,out
    nan_to_num_.default conj_physical.default,out conj_physical_.default _conj_physical.default,out
    deg2rad.default,out deg2rad_.default rad2deg.default,out rad2deg_.default
    where.default,Scalar,ScalarOther,ScalarSelf,self,self_out
    masked_fill.Scalar,Scalar_out,Tensor,Tensor_out masked_fill_.Scalar,Tensor ldexp.Tensor,out
    ldexp_.default gcd.default,out gcd_.default lcm.default,out lcm_.default relu6.default relu6_.default
    subtract.Scalar,Tensor,out subtract_.Scalar,Tensor multiply.Scalar,Tensor,out multiply_.Scalar,Tensor
    divide.Scalar,Scalar_mode,Tensor,Tensor_mode,out,out_mode=out
    divide_.Scalar,Scalar_mode,Tensor,Tensor_mode true_divide.Scalar,Tensor,out true_divide_.Scalar,Tensor
    clip.default,Tensor,Tensor_out,out clip_.default,Tensor absolute.default,out absolute_.default
    fix.default,out fix_.default greater.Scalar,Scalar_out,Tensor,Tensor_out greater_.Scalar,Tensor
    greater_equal.Scalar,Scalar_out,Tensor,Tensor_out greater_equal_.Scalar,Tensor
    less.Scalar,Scalar_out,Tensor,Tensor_out less_.Scalar,Tensor
    less_equal.Scalar,Scalar_out,Tensor,Tensor_out less_equal_.Scalar,Tensor
    not_equal.Scalar,Scalar_out,Tensor,Tensor_out not_equal_.Scalar,Tensor __and__.Scalar,Tensor
    __or__.Scalar,Tensor __xor__.Scalar,Tensor __lshift__.Scalar,Tensor __rshift__.Scalar,Tensor
    angle.default,out complex.default,out polar.default,out isclose.default isreal.default max.other,out
    min.other,out
"""

# Python's in-place operators; their names do not end in one underscore.
_PYTHON_IN_PLACE = """
    __iand__.Scalar,Tensor __ior__.Scalar,Tensor __ixor__.Scalar,Tensor __ilshift__.Scalar,Tensor
    __irshift__.Scalar,Tensor
"""

# A fused multiply-add and its like.
_FUSED = """
    addcdiv.default,out addcdiv_.default addcmul.default,out addcmul_.default
    lerp.Scalar,Scalar_out,Tensor,Tensor_out lerp_.Scalar,Tensor _add_relu.Scalar,Scalar_out,Tensor,out
    _add_relu_.Scalar,Tensor hypot.default,out hypot_.default
"""

# Exponentials, logarithms, trigonometry: a polynomial or a table, counted as ten.
_TRANSCENDENTAL = """
    acos.default,out acos_.default acosh.default,out acosh_.default asin.default,out asin_.default
    asinh.default,out asinh_.default atan.default,out atan_.default atan2.default,out atan2_.default
    atanh.default,out atanh_.default cos.default,out cos_.default cosh.default,out cosh_.default
    digamma.default,out digamma_.default erf.default,out erf_.default erfc.default,out erfc_.default
    erfinv.default,out erfinv_.default exp.default,out exp_.default exp2.default,out exp2_.default
    expm1.default,out expm1_.default i0.default,out i0_.default igamma.default,out igamma_.default
    igammac.default,out igammac_.default lgamma.default,out lgamma_.default log.default,out log_.default
    log10.default,out log10_.default log1p.default,out log1p_.default log2.default,out log2_.default
    logaddexp.default,out logaddexp2.default,out logit.default,out logit_.default mvlgamma.default,out
    mvlgamma_.default polygamma.default,out polygamma_.default
    pow.Scalar,Scalar_out,Tensor_Scalar,Tensor_Scalar_out,Tensor_Tensor,Tensor_Tensor_out
    pow_.Scalar,Tensor
    float_power.Scalar,Scalar_out,Tensor_Scalar,Tensor_Scalar_out,Tensor_Tensor,Tensor_Tensor_out
    float_power_.Scalar,Tensor rsqrt.default,out rsqrt_.default sigmoid.default,out sigmoid_.default
    sin.default,out sin_.default sinc.default,out sinc_.default sinh.default,out sinh_.default
    tan.default,out tan_.default tanh.default,out tanh_.default
    xlogy.OutScalar_Other=out,OutScalar_Self=out,OutTensor=out,Scalar_Other,Scalar_Self,Tensor
    xlogy_.Scalar_Other,Tensor special_entr.default,out special_erfcx.default,out special_i0e.default,out
    special_i1.default,out special_i1e.default,out special_log_ndtr.default,out special_ndtri.default,out
    special_xlog1py.default,other_scalar,other_scalar_out,out,self_scalar,self_scalar_out
    special_zeta.default,other_scalar,other_scalar_out,out,self_scalar,self_scalar_out
    special_bessel_j0.default,out special_bessel_j1.default,out special_ndtr.default,out
    special_expit.default,out special_erf.default,out frexp.Tensor,Tensor_out=mantissa+exponent
"""


def rows() -> Iterator[OpSpec]:
    """Pointwise arithmetic and functions."""
    yield from declare(_ARITHMETIC, Trait.ELEMENTWISE, flops=per_output(1))
    yield from declare(_PYTHON_IN_PLACE, Trait.ELEMENTWISE, writes=(0,), flops=per_output(1))
    yield from declare(_FUSED, Trait.ELEMENTWISE, flops=per_output(3))
    yield from declare(_TRANSCENDENTAL, Trait.ELEMENTWISE, flops=per_output(10))
