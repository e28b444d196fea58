"""ATen loss functions and their backward passes."""

from __future__ import annotations

from collections.abc import Iterator

from neaptide.ir.registry import OpSpec, Trait
from neaptide.ops.formulas import per_input
from neaptide.ops.storages import unreduced_loss, unreduced_promoted_loss
from neaptide.ops.table import declare

# With a reduction they return a scalar in the storage of the unreduced loss; broadcasting and promoting operands.
_BROADCASTING = "mse_loss.default smooth_l1_loss.default"
_HONEST = """
    huber_loss.default l1_loss.default kl_div.default binary_cross_entropy_with_logits.default
    nll_loss_forward.default nll_loss2d_forward.default nll_loss.default nll_loss2d.default
    nll_loss_nd.default cross_entropy_loss.default multi_margin_loss.default
    multilabel_margin_loss_forward.default multilabel_margin_loss.default margin_ranking_loss.default
    hinge_embedding_loss.default cosine_embedding_loss.default triplet_margin_loss.default
    poisson_nll_loss.default cosine_similarity.default pairwise_distance.default
"""
_OUT = """
    mse_loss.out smooth_l1_loss.out binary_cross_entropy.out soft_margin_loss.out huber_loss.out
    nll_loss_forward.output=output+total_weight nll_loss2d_forward.output=output+total_weight
    multi_margin_loss.out multilabel_margin_loss_forward.output=output+is_target
    binary_cross_entropy_with_logits.out
"""
_BACKWARD = """
    mse_loss_backward.default,grad_input=grad_input smooth_l1_loss_backward.default,grad_input=grad_input
    huber_loss_backward.default,out=grad_input binary_cross_entropy_backward.default,grad_input=grad_input
    soft_margin_loss_backward.default,grad_input=grad_input
    nll_loss_backward.default,grad_input=grad_input nll_loss2d_backward.default,grad_input=grad_input
    multi_margin_loss_backward.default,grad_input=grad_input
    multilabel_margin_loss_backward.default,grad_input=grad_input
"""
_CTC = """
    _ctc_loss.default,Tensor _ctc_loss_backward.default,Tensor _cudnn_ctc_loss.default,Tensor
"""


def rows() -> Iterator[OpSpec]:
    """Losses, reduced or not."""
    loss = Trait.LOSS
    yield from declare(_BROADCASTING, loss, flops=per_input(4), storage_bytes=unreduced_promoted_loss)
    yield from declare(
        "binary_cross_entropy.default", loss, flops=per_input(20), storage_bytes=unreduced_loss(3)
    )
    yield from declare("soft_margin_loss.default", loss, flops=per_input(20), storage_bytes=unreduced_loss(2))
    yield from declare(_HONEST, loss, flops=per_input(4))
    yield from declare(_OUT, loss, flops=per_input(4))
    yield from declare(_BACKWARD, loss, flops=per_input(4, position=1))
    yield from declare(_CTC, loss, flops=per_input(20), deterministic=False)
