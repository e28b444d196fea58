"""Plans for all shapes: each call runs the fastest that keeps to the budget at its shape."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from neaptide.analysis.profile_bytes import memory_profile
from neaptide.ask import Ask
from neaptide.budget import Budget
from neaptide.errors import InfeasibleBudget, UsageError
from neaptide.frontends.torch_step import capture_step
from neaptide.ir.edits.with_sizes import with_sizes
from neaptide.outcome import Limits
from neaptide.policy.plans_by_shape import plan_shapes
from neaptide.policy.prepared_step import PreparedStep
from support.step_checks import needs_varying_dims

pytestmark = needs_varying_dims


def step_and_batch(rows=6, width=32):
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(batch):
        optimizer.zero_grad()
        loss = functional.mse_loss(model(batch), batch)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, torch.randn(rows, width)


@pytest.fixture(scope="module")
def planned():
    step, batch = step_and_batch()
    captured = capture_step(step, (batch,), dynamic={"batch": {0: (2, 400)}})
    prepared = PreparedStep(captured, device="a100-80g")
    return captured, plan_shapes(prepared, Ask(Budget("75%"), limits=Limits(work=600)))


def test_at_every_shape_the_chosen_plan_keeps_to_the_budget_and_small_shapes_repeat_nothing(planned):
    captured, variant = planned
    (dim,) = captured.steady.graph.dims
    for program, made in zip(captured.programs, variant.graphs, strict=True):
        plans = made.by_shape
        repeats = [len(p.schedule.node_steps()) - len(program.graph.nodes) for p in plans.plans]
        assert repeats == sorted(repeats)
        chosen = {size: plans.choose({dim.name: size}) for size in range(dim.low, dim.high + 1, 7)}
        assert repeats[chosen[dim.low]] == 0
        for size, number in chosen.items():
            static = with_sizes(program.graph, {dim.name: size})
            scratch = dict.fromkeys(range(len(static.nodes)), 0)
            profile = memory_profile(static, plans.plans[number].schedule, workspace=scratch)
            assert profile.peak_bytes == plans.plans[number].peaks.peak_bytes({dim.name: size})
            assert profile.peak_bytes <= plans.budget_bytes
        assert repeats[plans.choose({dim.name: dim.high})] > 0 or program is not captured.steady
        with pytest.raises(InfeasibleBudget, match="no plan keeps a call with") as refused:
            plans.choose({dim.name: 2 * dim.high})
        assert refused.value.smallest_peak_bytes > plans.budget_bytes


def test_a_range_without_an_end_and_a_budget_that_the_largest_shape_cannot_keep_to_are_refused(planned):
    step, batch = step_and_batch()
    captured = capture_step(step, (batch,), dynamic={"batch": {0: (2, None)}})
    with pytest.raises(UsageError, match="has no end"):
        plan_shapes(PreparedStep(captured), Ask(Budget("75%")))
    captured, _ = planned
    with pytest.raises(InfeasibleBudget, match="batch_0 = 400"):
        plan_shapes(PreparedStep(captured, device="a100-80g"), Ask(Budget(100_000), limits=Limits(work=100)))
