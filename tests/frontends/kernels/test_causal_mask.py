"""Which causal masks become a flag, and which stay."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from neaptide.frontends.torch_step import capture_step
from programs.program import descending
from support.step_checks import assert_same_bits


class OwnMask(nn.Module):
    """Attention under a causal mask that the model itself makes, traced or not."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).unsqueeze(1).chunk(3, dim=-1)
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def own_mask():
    model = OwnMask()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    return descending(optimizer, lambda batch: model(batch).square().mean()), torch.randn(2, 16, 8)


def test_a_mask_of_the_users_own_stays():
    step, batch = own_mask()
    captured = capture_step(step, (batch,))
    assert captured.steady.rewrites == ()
    assert any(n.kwarg("attn_mask") is not None for n in captured.steady.graph.nodes if "attention" in n.op)
    assert_same_bits(own_mask)
