"""ATen ops on lists of tensors: `_foreach_*`, fused optimizers, loss scaling."""

from __future__ import annotations

from collections.abc import Iterator

from neaptide.ir.registry import OpSpec, Trait
from neaptide.ops.effects import when_scaled
from neaptide.ops.formulas import per_list_element
from neaptide.ops.table import declare

_FOREACH = """
    _foreach_abs.default _foreach_acos.default _foreach_add.List,Scalar,ScalarList,Tensor
    _foreach_addcdiv.Scalar,ScalarList,Tensor _foreach_addcmul.Scalar,ScalarList,Tensor
    _foreach_asin.default _foreach_atan.default _foreach_ceil.default
    _foreach_clamp_max.List,Scalar,ScalarList _foreach_clamp_min.List,Scalar,ScalarList
    _foreach_clone.default _foreach_copy.default _foreach_cos.default _foreach_cosh.default
    _foreach_div.List,Scalar,ScalarList,Tensor _foreach_erf.default _foreach_erfc.default
    _foreach_exp.default _foreach_expm1.default _foreach_floor.default _foreach_frac.default
    _foreach_lerp.List,Scalar,ScalarList _foreach_lgamma.default _foreach_log.default
    _foreach_log10.default _foreach_log1p.default _foreach_log2.default _foreach_max.default
    _foreach_maximum.List,Scalar,ScalarList _foreach_minimum.List,Scalar,ScalarList
    _foreach_mul.List,Scalar,ScalarList,Tensor _foreach_neg.default _foreach_norm.Scalar
    _foreach_pow.List,Scalar,ScalarAndTensor,ScalarList _foreach_powsum.Scalar _foreach_reciprocal.default
    _foreach_round.default _foreach_rsqrt.default _foreach_sigmoid.default _foreach_sign.default
    _foreach_sin.default _foreach_sinh.default _foreach_sqrt.default _foreach_sub.List,Scalar,ScalarList
    _foreach_tan.default _foreach_tanh.default _foreach_trunc.default _foreach_zero.default
"""
_FOREACH_IN_PLACE = """
    _foreach_abs_.default _foreach_acos_.default _foreach_add_.List,Scalar,ScalarList,Tensor
    _foreach_addcdiv_.Scalar,ScalarList,Tensor _foreach_addcmul_.Scalar,ScalarList,Tensor
    _foreach_asin_.default _foreach_atan_.default _foreach_ceil_.default
    _foreach_clamp_max_.List,Scalar,ScalarList _foreach_clamp_min_.List,Scalar,ScalarList
    _foreach_copy_.default _foreach_cos_.default _foreach_cosh_.default
    _foreach_div_.List,Scalar,ScalarList,Tensor _foreach_erf_.default _foreach_erfc_.default
    _foreach_exp_.default _foreach_expm1_.default _foreach_floor_.default _foreach_frac_.default
    _foreach_lerp_.List,Scalar,ScalarList _foreach_lgamma_.default _foreach_log_.default
    _foreach_log10_.default _foreach_log1p_.default _foreach_log2_.default
    _foreach_maximum_.List,Scalar,ScalarList _foreach_minimum_.List,Scalar,ScalarList
    _foreach_mul_.List,Scalar,ScalarList,Tensor _foreach_neg_.default _foreach_pow_.List,Scalar,ScalarList
    _foreach_reciprocal_.default _foreach_round_.default _foreach_rsqrt_.default _foreach_sigmoid_.default
    _foreach_sign_.default _foreach_sin_.default _foreach_sinh_.default _foreach_sqrt_.default
    _foreach_sub_.List,Scalar,ScalarList _foreach_tan_.default _foreach_tanh_.default
    _foreach_trunc_.default _foreach_zero_.default
"""
_ADAM = """
    _fused_adam_.default,tensor_lr _fused_adamw_.default,tensor_lr
"""
_SGD = """
    _fused_sgd_.default,tensor_lr
"""
_ADAGRAD = """
    _fused_adagrad_.default,tensor_lr
"""


def rows() -> Iterator[OpSpec]:
    """Updates of many tensors in one call.

    Schemas mark the gradients of fused optimizers as overwritten; they are so only when a `grad_scale` is given.
    `state_steps` are counted up by an op of their own beforehand, so that no fused kernel writes them.
    """
    update, gradients = Trait.UPDATE, when_scaled(1)
    yield from declare(_FOREACH, flops=per_list_element(1))
    yield from declare(_FOREACH_IN_PLACE, update, flops=per_list_element(1))
    yield from declare(_ADAM, update, writes=(0, 2, 3, 4), writes_if=gradients, flops=per_list_element(15))
    yield from declare(_SGD, update, writes=(0, 2), writes_if=gradients, flops=per_list_element(6))
    yield from declare(_ADAGRAD, update, writes=(0, 2), writes_if=gradients, flops=per_list_element(8))
    yield from declare(
        "_amp_foreach_non_finite_check_and_unscale_.default", update, writes=(0, 1), flops=per_list_element(2)
    )
    yield from declare("_amp_update_scale_.default", update, writes=(0, 1))
