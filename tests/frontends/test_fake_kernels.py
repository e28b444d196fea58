"""Fake kernels of ours: geometry as the real kernels give it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from neaptide.frontends.fake_kernels import FAKE_KERNELS
from step_checks import assert_same_bits

GROUPED = torch.ops.aten._grouped_mm.default


def operands(dtype, columns):
    """Pairs of 2D and 3D operands in the layouts that the kernels take, and where groups end."""
    ends = torch.tensor([3, 8], dtype=torch.int32)
    weights = torch.randn(2, columns, 16).to(dtype).transpose(1, 2)
    yield torch.randn(8, 16).to(dtype), weights, ends
    yield torch.randn(2, 8, 16).to(dtype), weights, None
    yield torch.randn(2, 8, 16).to(dtype), torch.randn(columns, 16).to(dtype).t(), None
    if columns % 8 == 0:
        yield torch.randn(8, 16).to(dtype).t(), torch.randn(8, columns).to(dtype), ends


@pytest.mark.parametrize("columns", [5, 8, 12])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_grouped_products_have_the_geometry_of_the_kernel(dtype, columns):
    compared = 0
    for left, right, ends in operands(dtype, columns):
        try:
            real = GROUPED(left, right, ends)
        except RuntimeError:  # this build, or this processor, has no kernel for it
            continue
        fake = FAKE_KERNELS[GROUPED](left, right, ends)
        assert (fake.shape, fake.stride(), fake.dtype) == (real.shape, real.stride(), real.dtype)
        assert fake.untyped_storage().nbytes() == real.untyped_storage().nbytes()
        compared += 1
    if not compared:
        pytest.skip("no kernel for any of them")


def test_experts_in_full_precision_give_the_bits_of_eager():
    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.router = nn.Linear(16, 4)
            self.weight = nn.Parameter(torch.randn(4, 16, 8) * 0.1)

        def forward(self, x):
            scores, chosen = self.router(x).softmax(-1).max(-1)
            order = chosen.argsort(stable=True)
            ends = (chosen[:, None] == torch.arange(4)).sum(0).cumsum(0, dtype=torch.int32)
            products = torch._grouped_mm(x[order], self.weight, offs=ends)
            return torch.zeros_like(products).index_copy(0, order, products) * scores[:, None]

    try:
        Experts()(torch.randn(6, 16)).sum().backward()
    except RuntimeError:
        pytest.skip("this build, or this processor, has no kernel for grouped products")

    def factory():
        model = Experts()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(x):
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss.detach()

        return step, torch.randn(6, 16)

    assert_same_bits(factory)
