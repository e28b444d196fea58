"""ATen's fused attention kernels, forward and backward, for all devices."""

from __future__ import annotations

from collections.abc import Iterator

from neaptide.ir.registry import OpSpec, Trait
from neaptide.ops.effects import probability_positive
from neaptide.ops.formulas import attention, attention_backward
from neaptide.ops.table import declare

# Position of `dropout_p`, whether the operands are (b, s, h, d), and the names.
_FORWARD = (
    (3, False, "_scaled_dot_product_flash_attention.default"),
    (3, False, "_scaled_dot_product_flash_attention_for_cpu.default"),
    (5, False, "_scaled_dot_product_efficient_attention.default"),
    (5, False, "_scaled_dot_product_cudnn_attention.default"),
    (4, False, "_scaled_dot_product_fused_attention_overrideable.default"),
    (4, False, "_scaled_dot_product_attention_math.default"),
    (4, False, "scaled_dot_product_attention.default"),
    (7, True, "_flash_attention_forward.default"),
    (8, True, "_efficient_attention_forward.default"),
    (9, False, "_cudnn_attention_forward.default"),
)
_BACKWARD = """
    _scaled_dot_product_flash_attention_for_cpu_backward.default
    _scaled_dot_product_fused_attention_overrideable_backward.default
"""
# Gradients of query and key are added up with atomics on CUDA. They repeat the dropout mask from the seed that the
# forward pass handed on, so they draw nothing, whatever their tags say.
_BACKWARD_WITH_ATOMICS = """
    _scaled_dot_product_flash_attention_backward.default _scaled_dot_product_efficient_attention_backward.default
    _scaled_dot_product_cudnn_attention_backward.default _cudnn_attention_backward.default
"""
_BACKWARD_BATCH_FIRST = """
    _flash_attention_backward.default _efficient_attention_backward.default
"""


def rows() -> Iterator[OpSpec]:
    """Scaled dot product attention in one kernel."""
    for dropout, batch_first, name in _FORWARD:
        yield from declare(
            name,
            Trait.ATTENTION,
            rng=True,
            rng_if=probability_positive(dropout),
            flops=attention(batch_first),
        )
    yield from declare(_BACKWARD, Trait.ATTENTION, flops=attention_backward())
    yield from declare(
        _BACKWARD_WITH_ATOMICS, Trait.ATTENTION, flops=attention_backward(), deterministic=False
    )
    yield from declare(
        _BACKWARD_BATCH_FIRST,
        Trait.ATTENTION,
        flops=attention_backward(batch_first_layout=True),
        deterministic=False,
    )
