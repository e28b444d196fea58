"""No search for a variant without parts goes on once parts, with nothing recomputed, are lower than recomputation brought it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from frontends import steps
from neaptide.budget import Budget
from neaptide.cost.model import EstimatedCost
from neaptide.cost.presets import get_device
from neaptide.frontends.torch_step import capture_step
from neaptide.ops import registry
from neaptide.outcome import Limits
from neaptide.planner.plan_graph import GraphAsk
from neaptide.planner.pricing import Pricing
from neaptide.planner.strategies.program_order import baseline
from neaptide.planner.variants.choices import Choices
from neaptide.planner.variants.planning import VariantPrices
from neaptide.planner.variants.search import plan_variants
from wide_rows import rows_step

PRICING = Pricing(EstimatedCost(get_device("rtx3090"), registry()), registry())
LONG = Budget(None, latency=3600.0)


class HalfInParts(nn.Module):
    """Ten layers on two rows; sums over the rows keep the first five out of parts, and recomputation reaches all."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(10)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for number, layer in enumerate(self.layers):
            x = torch.tanh(layer(x)).cumsum(1)
            if number < 5:
                x = x.cumsum(0)
        return x.square().sum((1, 2))


def half_in_parts_step():
    torch.manual_seed(0)
    model = HalfInParts()
    return steps.simple(model, torch.optim.SGD(model.parameters(), lr=0.1)), torch.randn(2, 600, 4)


def searched(factory, budget):
    """A search, and the peak of program order."""
    step, batch = factory()
    graph = capture_step(step, (batch,)).steady.graph
    before = baseline(PRICING.problem(graph)).peak_with_workspace_bytes
    asked = GraphAsk(budget, limits=Limits(None, 2000), workers=1, budget_bytes=budget.resolve(before))
    return plan_variants(
        graph,
        lambda _: asked,
        VariantPrices(PRICING, lambda _: PRICING),
        Choices(registry(), lambda _: None),
    )


def without_parts(made):
    """Of the plans without parts, those that were made before any with parts, and those that were searched longer."""
    whole = [tried for tried in made.tried if " parts along " not in tried.label]
    longer = [tried for tried in whole if tried.label.endswith("searched longer")]
    return [tried for tried in whole if tried not in longer], longer


def written(made):
    """The peak of the answer's graph with nothing recomputed."""
    return baseline(PRICING.problem(made.variant.graph)).peak_with_workspace_bytes


def test_where_parts_are_far_ahead_nothing_without_parts_is_searched_longer():
    made = searched(rows_step, LONG)
    first, longer = without_parts(made)
    assert written(made) < min(tried.peak_bytes for tried in first)
    assert longer == []
    assert made.found.program.predictions.peak_with_workspace_bytes == min(t.peak_bytes for t in made.tried)


@pytest.mark.slow
def test_where_parts_need_recomputation_to_be_ahead_the_graph_without_them_is_searched_longer():
    made = searched(half_in_parts_step, LONG)
    first, longer = without_parts(made)
    lowest = min(tried.peak_bytes for tried in first)
    assert made.found.program.predictions.peak_with_workspace_bytes < lowest <= written(made)
    assert longer != []


def test_where_no_parts_are_better_the_graph_without_them_is_searched_longer():
    step, batch = rows_step()
    before = baseline(PRICING.problem(capture_step(step, (batch,)).steady.graph))
    made = searched(rows_step, Budget(None, latency=1.5 * before.seconds))
    assert not any(rewrite.rule == "fission" for rewrite in made.variant.rewrites)
    assert without_parts(made)[1] != []


@pytest.mark.slow
def test_within_bytes_time_is_asked_for_so_lower_parts_are_not_ahead():
    made = searched(rows_step, Budget("30%"))
    first, longer = without_parts(made)
    assert written(made) < min(tried.peak_bytes for tried in first)
    assert longer != []
