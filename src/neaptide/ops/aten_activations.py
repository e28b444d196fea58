"""ATen activation functions, dropout and their backward passes: element by element too."""

from __future__ import annotations

from collections.abc import Iterator

from neaptide.ir.registry import OpSpec, Trait
from neaptide.ops.effects import flag_not_false, when_flag
from neaptide.ops.formulas import per_output
from neaptide.ops.table import declare
from neaptide.ops.workspace import dropout_mask

_CHEAP = """
    hardshrink.default,out hardsigmoid.default,out hardsigmoid_.default hardswish.default,out
    hardswish_.default hardtanh.default,out hardtanh_.default leaky_relu.default,out leaky_relu_.default
    softshrink.default,out _prelu_kernel.default prelu.default
    hardshrink_backward.default,grad_input=grad_input hardsigmoid_backward.default,grad_input=grad_input
    hardswish_backward.default,out hardtanh_backward.default,grad_input=grad_input
    leaky_relu_backward.default,grad_input=grad_input softshrink_backward.default,grad_input=grad_input
    threshold_backward.default,grad_input=grad_input _prelu_kernel_backward.default
    sigmoid_backward.default,grad_input=grad_input tanh_backward.default,grad_input=grad_input
    native_dropout_backward.default,out rrelu_with_noise_backward.default,out _masked_scale.default,out
"""

_COSTLY = """
    celu.default,out celu_.default elu.default,out elu_.default gelu.default,out gelu_.default
    log_sigmoid.default,out mish.default,out mish_.default selu.default selu_.default silu.default,out
    silu_.default softplus.default,out log_sigmoid_forward.default,output=output+buffer
    elu_backward.default,grad_input=grad_input gelu_backward.default,grad_input=grad_input
    silu_backward.default,grad_input=grad_input mish_backward.default
    softplus_backward.default,grad_input=grad_input log_sigmoid_backward.default,grad_input=grad_input
    logit_backward.default,grad_input=grad_input infinitely_differentiable_gelu_backward.default
"""

# The result has half of the operand's elements along one axis.
_GATED = """
    glu.default,out glu_backward.default,grad_input=grad_input glu_jvp.default,out
    glu_backward_jvp.default,out
"""

# `native_dropout` on CPU advances the generator in training even for p = 0 and p = 1 (measured on 2.13).
_DROPOUT = """
    native_dropout.default,out=out0+out1
"""
_FUSED_DROPOUT = """
    _fused_dropout.default,out=out0+out1
"""
_COMPOSITE_DROPOUT = """
    dropout.default feature_dropout.default alpha_dropout.default feature_alpha_dropout.default
    dropout_.default feature_dropout_.default alpha_dropout_.default feature_alpha_dropout_.default
"""
_RRELU = """
    rrelu_with_noise.default
"""
_RRELU_IN_PLACE = """
    rrelu_with_noise_.default
"""
_RRELU_FUNCTIONAL = """
    rrelu_with_noise_functional.default
"""


def rows() -> Iterator[OpSpec]:
    """Activations, dropout and their gradients."""
    yield from declare(_CHEAP, Trait.ELEMENTWISE, flops=per_output(2))
    yield from declare(_COSTLY, Trait.ELEMENTWISE, flops=per_output(15))
    yield from declare(_GATED, flops=per_output(15))
    yield from declare(
        _DROPOUT,
        Trait.ELEMENTWISE,
        rng=True,
        rng_if=flag_not_false(2, "train", default=None),
        flops=per_output(3),
        workspace=dropout_mask,
    )
    yield from declare(_FUSED_DROPOUT, Trait.ELEMENTWISE, rng=True, flops=per_output(3))
    yield from declare(
        _COMPOSITE_DROPOUT,
        Trait.ELEMENTWISE,
        rng=True,
        rng_if=flag_not_false(2, "train", default=None),
        flops=per_output(3),
    )
    yield from _randomised_relu()


def _randomised_relu() -> Iterator[OpSpec]:
    training = flag_not_false(4, "training", default=False)
    yield from declare(
        _RRELU,
        Trait.ELEMENTWISE,
        writes_if=when_flag(4, "training", 1),
        rng=True,
        rng_if=training,
        flops=per_output(3),
    )
    yield from declare(
        _RRELU_IN_PLACE,
        Trait.ELEMENTWISE,
        writes_if=when_flag(4, "training", 1),
        rng=True,
        rng_if=training,
        flops=per_output(3),
    )
    yield from declare(_RRELU_FUNCTIONAL, Trait.ELEMENTWISE, rng=True, rng_if=training, flops=per_output(3))
