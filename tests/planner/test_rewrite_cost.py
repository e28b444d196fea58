"""The cost of a rewrite: what is counted by hand before and after."""

from __future__ import annotations

import math

import pytest

from neaptide.analysis.profile_bytes import memory_profile
from neaptide.cost.model import EstimatedCost
from neaptide.cost.presets import get_device
from neaptide.ir.schedule import Schedule
from neaptide.ops import registry
from neaptide.planner.pricing import Pricing
from neaptide.planner.rewrite_cost import RewriteCost, rewrite_cost
from neaptide.planner.strategies.program_order import baseline
from neaptide.transform.rewrite import replay
from neaptide.transform.rules import RULES
from rule_examples import EXAMPLES
from together import together


def made_by(rule):
    """An example of a rule, its edited graph, and what prices both."""
    example = EXAMPLES[rule]()
    cost = EstimatedCost(get_device("rtx3090"), registry(), example.sizes)
    pricing = Pricing(cost, registry(), binding=example.sizes)
    return example.graph, replay(example.graph, registry(), [example.rewrite], RULES), pricing


def counted(graph, pricing):
    """Peak and seconds of program order, each operation by itself."""
    peak = memory_profile(
        graph,
        Schedule.program_order(graph),
        binding=pricing.binding,
        workspace=pricing.prices(graph).own_workspace,
    ).peak_with_workspace_bytes
    return peak, math.fsum(pricing.cost.seconds(graph, node) for node in graph.nodes)


@together("rule", RULES)
def test_it_is_the_difference_of_what_is_counted(rule):
    graph, edited, pricing = made_by(rule)
    (peak, seconds), (peak_before, seconds_before) = (counted(g, pricing) for g in (edited.graph, graph))
    found = rewrite_cost(*(baseline(pricing.problem(g)) for g in (graph, edited.graph)))
    assert found.peak_bytes == peak - peak_before
    assert found.seconds == pytest.approx(seconds - seconds_before, abs=1e-12)


@pytest.mark.parametrize(
    ("cost", "loses"),
    [
        (RewriteCost(0, 1.0), True),
        (RewriteCost(1, 1.0), True),
        (RewriteCost(-1, 1.0), False),
        (RewriteCost(0, 0.0), False),
        (RewriteCost(1, -1.0), False),
    ],
)
def test_only_what_takes_longer_and_is_no_lower_loses(cost, loses):
    assert cost.only_loses is loses
