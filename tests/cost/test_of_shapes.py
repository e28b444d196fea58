"""Seconds of all nodes for a shape are what the estimate says of each node for it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neaptide.cost.model import EstimatedCost
from neaptide.cost.of_shapes import CostOfShapes
from neaptide.cost.presets import PRESETS, get_device
from neaptide.ops import registry
from support.symbolic_steps import for_all_shapes

GRAPH = for_all_shapes(layers=2)


@settings(deadline=None)
@given(st.sampled_from(sorted(PRESETS)), st.integers(1, 4000), st.integers(1, 4000))
def test_seconds_are_those_of_the_estimate(device, batch, tokens):
    sizes = {"B": batch, "T": tokens}
    cost = EstimatedCost(get_device(device), registry())
    shaped, exact = CostOfShapes(GRAPH, cost), cost.under(sizes)
    expected = [exact.seconds(GRAPH, node) for node in GRAPH.nodes]
    assert shaped.seconds(sizes).tolist() == pytest.approx(expected, rel=1e-12, abs=0)


def test_flops_are_those_of_the_op_table():
    cost = EstimatedCost(get_device("rtx3090"), registry())
    found = CostOfShapes(GRAPH, cost).flops({"B": 3, "T": 5})
    (first, *_) = (node.id for node in GRAPH.nodes if node.op == "aten.bmm.default")
    assert found[first] == 2 * (3 * 2) * 5 * 3 * 5
    assert all(found[n.id] == 0 for n in GRAPH.nodes if n.op == "aten.view.default")
