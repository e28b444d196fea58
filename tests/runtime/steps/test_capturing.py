"""A call of one row in a range gets a program in which the other dims vary."""

from __future__ import annotations

import torch
from torch import nn

import neaptide
from support.step_checks import needs_varying_dims


def make():
    torch.manual_seed(0)
    model = nn.Linear(6, 6)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        later = x[:, 1:].contiguous()  # of one row it is no copy
        loss = (model(x[:, :-1]) - later).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@needs_varying_dims
def test_a_single_row_is_planned_once_for_all_lengths_of_a_named_range():
    step, eager = make(), make()
    ranges = {"x": {0: (1, 8), 1: (5, 60)}}
    fast = neaptide.compile_step(step, budget="100%", dynamic=ranges, time_limit_s=None, work_limit=100)
    for shape in ((4, 9), (1, 9), (1, 30), (3, 12), (1, 60)):
        x = torch.randn(*shape, 6, generator=torch.Generator().manual_seed(sum(shape)))
        assert torch.equal(fast(x), eager(x))
    assert fast.counts.replans == 1
    assert fast.counts.eager == 0
