from __future__ import annotations

import pytest
import torch
from torch import nn

import neaptide
from neaptide.errors import InfeasibleBudget


def residual_blocks():
    """Blocks with a sum around each, trained by Adagrad."""
    torch.manual_seed(3)
    blocks = nn.ModuleList(nn.Sequential(nn.Linear(24, 96), nn.Tanh(), nn.Linear(96, 24)) for _ in range(2))
    optimizer = torch.optim.Adagrad(blocks.parameters(), lr=0.01)

    def step(batch):
        optimizer.zero_grad()
        x = batch
        for block in blocks:
            x = x + block(x)
        loss = (x - batch.roll(1, 0)).abs().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, torch.randn(384, 24)


def refused(budget, work):
    step, batch = residual_blocks()
    with pytest.raises(InfeasibleBudget) as caught:
        neaptide.plan(step, batch, budget=budget, time_limit_s=None, work_limit=work)
    return caught.value


def test_a_floor_that_was_named_is_reached_by_a_search_that_finds_less():
    named = refused("20%", 60)
    assert str(named.smallest_peak_bytes) in named.next_step
    step, batch = residual_blocks()
    again = neaptide.plan(step, batch, budget=named.smallest_peak_bytes, time_limit_s=None, work_limit=1)
    program = again.program("steady")
    assert program.predictions.peak_with_workspace_bytes == named.smallest_peak_bytes == program.budget_bytes
    assert program.sequence == named.plan.program("steady").sequence
    # It is a plan like any other: it is written, read and run.
    assert neaptide.Plan.from_json(again.to_json()) == again
    expected, _ = residual_blocks()
    run = again.apply(step)
    assert [run(batch).item() for _ in range(2)] == [expected(batch).item() for _ in range(2)]


def accumulating():
    """Gradients are added up until a call is the last."""
    torch.manual_seed(1)
    net = nn.Linear(6, 6)
    optimizer = torch.optim.RMSprop(net.parameters(), lr=0.01)

    def step(batch, is_last=False):
        loss = net(batch).square().mean() / 2
        loss.backward()
        if is_last:
            optimizer.step()
            optimizer.zero_grad()
        return loss.detach()

    return step, torch.randn(4, 6)


def test_an_error_of_later_calls_says_how_they_differ():
    step, batch = accumulating()
    compiled = neaptide.compile_step(step, budget="100%", time_limit_s=None, work_limit=1)
    compiled(batch, is_last=False)

    def make(*_args):
        raise InfeasibleBudget("no plan was found", smallest_peak_bytes=9, lower_bound_bytes=8)

    compiled._make_variant = make
    with pytest.raises(
        InfeasibleBudget, match=r"no plan was found; these calls .*: .* is True, was False"
    ) as caught:
        compiled(batch, is_last=True)
    assert (caught.value.smallest_peak_bytes, caught.value.lower_bound_bytes) == (9, 8)
