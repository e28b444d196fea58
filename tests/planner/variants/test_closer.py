"""What parts would do clearly better than a plan that keeps the bits: told where it is so, and never where it is not."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from neaptide.cost.model import EstimatedCost
from neaptide.cost.presets import get_device
from neaptide.ops import registry
from neaptide.outcome import Limits
from neaptide.planner.budget import Budget
from neaptide.planner.plan_graph import PlanRequest, plan_graph
from neaptide.planner.pricing import Pricing
from neaptide.planner.strategies.program_order import baseline
from neaptide.planner.variants.choices import Choices
from neaptide.planner.variants.closer import closer_variant
from neaptide.planner.variants.goal import Goal
from neaptide.runtime.capturing import capture


def graph_of_rows(norm):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 64), norm, nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return capture(step, (torch.randn(240, 8),)).steady.graph


def pricing_of(call_seconds):
    """Prices of a device on which a call takes so long beside its work."""
    device = replace(get_device("rtx3090"), launch_s=call_seconds, half_flops=0.0, half_bytes=0.0)
    return Pricing(EstimatedCost(device, registry()), registry())


def planned(graph, pricing):
    budget = int(0.7 * baseline(pricing.problem(graph)).peak_with_workspace_bytes)
    request = PlanRequest(Budget(budget), "steady", budget_bytes=budget)
    return plan_graph(graph, pricing, request, Limits(None, 500, 0)).program


def found(graph, pricing, made, objection=lambda _edited: None):
    return closer_variant(graph, pricing, made, Goal(made.budget_bytes, None), objection)


@pytest.fixture(scope="module")
def rows():
    return graph_of_rows(nn.Identity())


def test_it_is_priced_as_the_variant_that_it_names(rows):
    pricing = pricing_of(0.0)
    made = planned(rows, pricing)
    closer = found(rows, pricing, made)
    assert closer is not None
    choices = Choices(registry(), lambda _edited: None)
    named = [
        variant
        for choice in choices.after(choices.begun(rows))
        for parts in range(2, choice.length + 1)
        if (variant := choices.taken(choice, parts)) is not None and variant.label == closer.label
    ]
    price = baseline(pricing.problem(named[0].edited.graph))
    assert (closer.peak_bytes, closer.seconds) == (price.peak_with_workspace_bytes, price.seconds)
    assert closer.peak_bytes <= 0.9 * made.predictions.peak_with_workspace_bytes
    assert closer.seconds <= made.predictions.seconds


def test_where_calls_are_dear_nothing_is_said(rows):
    pricing = pricing_of(1.0)
    assert found(rows, pricing, planned(rows, pricing)) is None


def test_a_variant_that_is_not_wanted_is_not_told(rows):
    pricing = pricing_of(0.0)
    assert found(rows, pricing, planned(rows, pricing), lambda _edited: "it is observed") is None


def test_where_the_batch_cannot_be_split_nothing_is_said():
    graph = graph_of_rows(nn.BatchNorm1d(64))
    pricing = pricing_of(0.0)
    closer = found(graph, pricing, planned(graph, pricing))
    assert closer is None or "forward and backward" not in closer.label
