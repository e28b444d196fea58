"""ATen ops that work element by element: arithmetic, functions, activations, dropout, lists of tensors, updates."""

from __future__ import annotations

from typing import Final

from neaptide.ir.registry import Trait
from neaptide.ops.byte_sizes import dropout_mask
from neaptide.ops.effects import flag_not_false, when_flag, when_scaled
from neaptide.ops.formulas import per_list_element, per_output
from neaptide.ops.table import in_place_names, meaning

_LISTS: Final = """
    _foreach_abs _foreach_acos _foreach_add.List,Scalar,ScalarList,Tensor
    _foreach_addcdiv.Scalar,ScalarList,Tensor _foreach_addcmul.Scalar,ScalarList,Tensor _foreach_asin
    _foreach_atan _foreach_ceil _foreach_clamp_max.List,Scalar,ScalarList
    _foreach_clamp_min.List,Scalar,ScalarList _foreach_copy _foreach_cos _foreach_cosh
    _foreach_div.List,Scalar,ScalarList,Tensor _foreach_erf _foreach_erfc _foreach_exp _foreach_expm1
    _foreach_floor _foreach_frac _foreach_lerp.List,Scalar,ScalarList _foreach_lgamma _foreach_log
    _foreach_log10 _foreach_log1p _foreach_log2 _foreach_maximum.List,Scalar,ScalarList
    _foreach_minimum.List,Scalar,ScalarList _foreach_mul.List,Scalar,ScalarList,Tensor _foreach_neg
    _foreach_pow.List,Scalar,ScalarList _foreach_reciprocal _foreach_round _foreach_rsqrt
    _foreach_sigmoid _foreach_sign _foreach_sin _foreach_sinh _foreach_sqrt
    _foreach_sub.List,Scalar,ScalarList _foreach_tan _foreach_tanh _foreach_trunc _foreach_zero
"""

_TRAIN: Final = flag_not_false(2, "train", default=None)
_TRAINING: Final = flag_not_false(4, "training", default=False)

ROWS: Final = (
    # One arithmetic operation per element.
    *meaning(Trait.ELEMENTWISE, flops=per_output(1))("""
        abs^~ add.Scalar^,Scalar_out,Tensor^^,out add_.Scalar,Tensor
        bitwise_and.Scalar^,Scalar_Tensor,Scalar_Tensor_out,Scalar_out,Tensor^^,Tensor_out
        bitwise_and_.Scalar,Tensor
        bitwise_left_shift.Scalar_Tensor,Scalar_Tensor_out,Tensor^^,Tensor_Scalar^,Tensor_Scalar_out,Tensor_out
        bitwise_left_shift_.Tensor,Tensor_Scalar bitwise_not^~
        bitwise_or.Scalar^,Scalar_Tensor,Scalar_Tensor_out,Scalar_out,Tensor^^,Tensor_out
        bitwise_or_.Scalar,Tensor
        bitwise_right_shift.Scalar_Tensor,Scalar_Tensor_out,Tensor^^,Tensor_Scalar^,Tensor_Scalar_out,Tensor_out
        bitwise_right_shift_.Tensor,Tensor_Scalar
        bitwise_xor.Scalar^,Scalar_Tensor,Scalar_Tensor_out,Scalar_out,Tensor^^,Tensor_out
        bitwise_xor_.Scalar,Tensor ceil^~ clamp^,Tensor^^^,Tensor_out,out clamp_,Tensor
        clamp_max^,Tensor^^,Tensor_out,out clamp_max_,Tensor clamp_min^,Tensor^^,Tensor_out,out
        clamp_min_,Tensor copysign.Scalar^,Scalar_out,Tensor^^,out copysign_.Scalar,Tensor
        div.Scalar^,Scalar_mode^,Scalar_mode_out,Scalar_out,Tensor^^,Tensor_mode^^,out,out_mode=out
        div_.Scalar,Scalar_mode,Tensor,Tensor_mode eq~Scalar^,Tensor^^ floor^~
        floor_divide^^,Scalar^,Scalar_out,out floor_divide_.Scalar,Tensor fmax^^,out fmin^^,out
        fmod~Scalar^,Tensor^^ frac^~ ge~Scalar^,Tensor^^ gt~Scalar^,Tensor^^ le~Scalar^,Tensor^^
        logical_and^^~ logical_not^~ logical_or^^~ logical_xor^^~ lt~Scalar^,Tensor^^ maximum^^,out
        minimum^^,out mul.Scalar^,Scalar_out,Tensor^^,out mul_.Scalar,Tensor ne~Scalar^,Tensor^^ neg^~
        negative^~ nextafter^^~ reciprocal^~ relu^~
        remainder.Scalar^,Scalar_Tensor,Scalar_Tensor_out,Scalar_out,Tensor^^,Tensor_out
        remainder_.Scalar,Tensor round^,decimals^,decimals_out,out round_,decimals
        rsub.Scalar,Scalar_out,Tensor,Tensor_out sgn^~ sign^~ signbit^,out sqrt^~ square^~
        sub.Scalar^,Scalar_out,Tensor^^,out sub_.Scalar,Tensor threshold^~ trunc^~ isinf,out isnan,out
        isneginf^,out isposinf^,out isfinite heaviside^^~ nan_to_num^~ conj_physical^~ _conj_physical,out
        deg2rad^~ rad2deg^~ where,Scalar,ScalarOther,ScalarSelf,self^^^,self_out masked_fill~Scalar^,Tensor^
        ldexp.Tensor^^,out ldexp_ gcd^^~ lcm^^~ relu6^ relu6_ subtract.Scalar^,Tensor^^,out
        subtract_.Scalar,Tensor multiply.Scalar^,Tensor^^,out multiply_.Scalar,Tensor
        divide.Scalar^,Scalar_mode^,Tensor^^,Tensor_mode^^,out,out_mode=out
        divide_.Scalar,Scalar_mode,Tensor,Tensor_mode true_divide.Scalar^,Tensor^^,out
        true_divide_.Scalar,Tensor clip^,Tensor^^^,Tensor_out,out clip_,Tensor absolute^~ fix^~
        greater~Scalar^,Tensor^^ greater_equal~Scalar^,Tensor^^ less~Scalar^,Tensor^^
        less_equal~Scalar^,Tensor^^ not_equal~Scalar^,Tensor^^ __and__.Scalar,Tensor __or__.Scalar,Tensor
        __xor__.Scalar,Tensor __lshift__.Scalar,Tensor __rshift__.Scalar,Tensor angle^,out complex,out
        polar,out isclose isreal max.other^^,out min.other^^,out
    """),
    # Python's in-place operators; their names do not end in one underscore.
    *meaning(Trait.ELEMENTWISE, writes=(0,), flops=per_output(1))("""
        __iand__.Scalar,Tensor __ior__.Scalar,Tensor __ixor__.Scalar,Tensor __ilshift__.Scalar,Tensor
        __irshift__.Scalar,Tensor
    """),
    # A fused multiply-add and its like.
    *meaning(Trait.ELEMENTWISE, flops=per_output(3))("""
        addcdiv^^^~ addcmul^^^~ lerp~Scalar^^,Tensor^^^ _add_relu.Scalar,Scalar_out,Tensor,out
        _add_relu_.Scalar,Tensor hypot^^~
    """),
    # Exponentials, logarithms, trigonometry: a polynomial or a table, counted as ten.
    *meaning(Trait.ELEMENTWISE, flops=per_output(10))("""
        acos^~ acosh^~ asin^~ asinh^~ atan^~ atan2^^~ atanh^~ cos^~ cosh^~ digamma^~ erf^~ erfc^~ erfinv^~
        exp^~ exp2^~ expm1^~ i0^~ igamma^^~ igammac^^~ lgamma^~ log^~ log10^~ log1p^~ log2^~ logaddexp^^,out
        logaddexp2^^,out logit^~ mvlgamma~ polygamma.out polygamma_
        pow.Scalar_out,Tensor_Scalar^,Tensor_Scalar_out,Tensor_Tensor^^,Tensor_Tensor_out
        pow_.Scalar,Tensor
        float_power.Scalar_out,Tensor_Scalar^,Tensor_Scalar_out,Tensor_Tensor^^,Tensor_Tensor_out
        float_power_.Scalar,Tensor rsqrt^~ sigmoid^~ sin^~ sinc^~ sinh^~ tan^~ tanh^~
        xlogy.OutScalar_Other=out,OutScalar_Self=out,OutTensor=out,Scalar_Other^,Tensor^^
        xlogy_.Scalar_Other,Tensor special_entr^,out special_erfcx^,out special_i0e^,out special_i1^,out
        special_i1e^,out special_log_ndtr^,out special_ndtri^,out
        special_xlog1py^^,other_scalar^,other_scalar_out,out,self_scalar_out
        special_zeta^^,other_scalar^,other_scalar_out,out,self_scalar_out special_bessel_j0^,out
        special_bessel_j1^,out special_ndtr^,out special_expit^,out special_erf^,out
        frexp.Tensor,Tensor_out=mantissa+exponent
    """),
    *meaning(Trait.ELEMENTWISE, flops=per_output(10), in_place=(1,))("""
        polygamma pow.Scalar float_power.Scalar xlogy.Scalar_Self special_xlog1py.self_scalar special_zeta.self_scalar
    """),
    *meaning(Trait.ELEMENTWISE, flops=per_output(15), in_place=(0, 5))("elu_backward"),
    *meaning(Trait.ELEMENTWISE, flops=per_output(2))("""
        hardshrink^,out hardsigmoid^~ hardswish^~ hardtanh^~ leaky_relu^~ softshrink^,out _prelu_kernel prelu
        hardshrink_backward^^,grad_input hardsigmoid_backward^^,grad_input hardswish_backward,out
        hardtanh_backward^^,grad_input leaky_relu_backward^^,grad_input softshrink_backward^^,grad_input
        threshold_backward^^,grad_input _prelu_kernel_backward sigmoid_backward^^,grad_input
        tanh_backward^^,grad_input native_dropout_backward,out rrelu_with_noise_backward,out _masked_scale,out
    """),
    *meaning(Trait.ELEMENTWISE, flops=per_output(15))("""
        celu^~ elu^~ gelu^~ log_sigmoid,out mish^~ selu^ selu_ silu^~ softplus^,out
        log_sigmoid_forward,output=output+buffer elu_backward.grad_input gelu_backward^^,grad_input
        silu_backward^^,grad_input mish_backward softplus_backward^^,grad_input
        log_sigmoid_backward,grad_input logit_backward^^,grad_input infinitely_differentiable_gelu_backward
    """),
    # The result has half of the operand's elements along one axis.
    *meaning(flops=per_output(15))("glu,out glu_backward,grad_input glu_jvp,out glu_backward_jvp,out"),
    # `native_dropout` on CPU advances the generator in training even for p = 0 and p = 1 (measured on 2.13).
    *meaning(Trait.ELEMENTWISE, rng=True, rng_if=_TRAIN, flops=per_output(3), workspace=dropout_mask)("""
        native_dropout,out=out0+out1
    """),
    *meaning(Trait.ELEMENTWISE, rng=True, flops=per_output(3))("_fused_dropout,out=out0+out1"),
    *meaning(Trait.ELEMENTWISE, rng=True, rng_if=_TRAIN, flops=per_output(3))("""
        dropout feature_dropout alpha_dropout feature_alpha_dropout dropout_ feature_dropout_ alpha_dropout_
        feature_alpha_dropout_
    """),
    *meaning(
        Trait.ELEMENTWISE,
        writes_if=when_flag(4, "training", 1),
        rng=True,
        rng_if=_TRAINING,
        flops=per_output(3),
    )("rrelu_with_noise rrelu_with_noise_"),
    *meaning(Trait.ELEMENTWISE, rng=True, rng_if=_TRAINING, flops=per_output(3))("""
        rrelu_with_noise_functional
    """),
    *meaning(flops=per_list_element(1))(_LISTS),
    *meaning(flops=per_list_element(1))(
        "_foreach_clone _foreach_max _foreach_norm.Scalar _foreach_powsum.Scalar _foreach_pow.ScalarAndTensor"
    ),
    *meaning(Trait.UPDATE, flops=per_list_element(1))(in_place_names(_LISTS)),
    # Schemas mark the gradients of fused optimizers as overwritten; they are so only when a `grad_scale` is given.
    # `state_steps` are counted up by an op of their own beforehand, so that no fused kernel writes them.
    *meaning(Trait.UPDATE, writes=(0, 2, 3, 4), writes_if=when_scaled(1), flops=per_list_element(15))("""
        _fused_adam_,tensor_lr _fused_adamw_,tensor_lr
    """),
    *meaning(Trait.UPDATE, writes=(0, 2), writes_if=when_scaled(1), flops=per_list_element(6))("""
        _fused_sgd_,tensor_lr
    """),
    *meaning(Trait.UPDATE, writes=(0, 2), writes_if=when_scaled(1), flops=per_list_element(8))("""
        _fused_adagrad_,tensor_lr
    """),
    *meaning(Trait.UPDATE, writes=(0, 1), flops=per_list_element(2))("""
        _amp_foreach_non_finite_check_and_unscale_
    """),
    *meaning(Trait.UPDATE, writes=(0, 1))("_amp_update_scale_"),
)
