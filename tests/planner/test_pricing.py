"""Prices of edited graphs: taken over or asked for, they are those of the whole graph."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from example_counts import examples
from neaptide.analysis.loops import NO_BODIES
from neaptide.cost.model import EstimatedCost
from neaptide.cost.presets import get_device
from neaptide.ir.edit import GraphEdit, NodeDraft
from neaptide.ir.nodes import Ref
from neaptide.planner.pricing import Pricing
from neaptide_corpus.training_steps import toy_registry, transformer_step
from random_edits import edited_graphs
from seen_cost import SeenCost
from strategies import graphs, segmented

REGISTRY = toy_registry()


@pytest.mark.parametrize("is_measured", [False, True])
@settings(max_examples=examples(120))
@given(st.data())
def test_an_edited_graph_has_the_prices_of_the_whole(is_measured, data):
    graph = data.draw(graphs(min_nodes=1, max_nodes=14).flatmap(segmented))
    edited = data.draw(edited_graphs(graph))
    cost = SeenCost(is_measured)
    whole = Pricing(cost, REGISTRY)
    carried = Pricing(cost, REGISTRY)
    assert carried.after(graph, edited) == whole.problem(edited.graph)
    assert carried.prices(edited.graph) == whole.prices(edited.graph)
    assert carried.storage_bytes(edited.graph) == whole.storage_bytes(edited.graph)


@settings(max_examples=examples(60))
@given(st.data())
def test_edits_one_after_another_carry_prices_on(data):
    graph = data.draw(graphs(min_nodes=1, max_nodes=12))
    pricing = Pricing(SeenCost(is_measured=True), REGISTRY)
    for _ in range(3):
        edited = data.draw(edited_graphs(graph, most=1))
        assert pricing.after(graph, edited) == Pricing(pricing.cost, REGISTRY).problem(edited.graph)
        graph = edited.graph


def test_only_what_is_new_is_asked_for(monkeypatch):
    made = transformer_step(layers=1)
    pricing = Pricing(EstimatedCost(get_device("rtx3090"), made.registry), made.registry)
    pricing.problem(made.graph)
    asked = Counter()
    seconds = EstimatedCost.seconds

    def counted(self, graph, node, bodies=NO_BODIES):
        asked[node.op] += 1
        return seconds(self, graph, node, bodies)

    monkeypatch.setattr(EstimatedCost, "seconds", counted)
    edit = GraphEdit(made.graph)
    value = made.graph.nodes[4].outputs[0]
    was = made.graph.values[value]
    copy = edit.fresh("copy", was.dtype, was.shape)
    edit.insert_after(4, NodeDraft("toy.mix", (value,), (copy,), (Ref(0),)))
    assert made.graph.consumers()[value]
    edit.replace_uses(value, copy)
    edited = edit.finish()
    pricing.after(made.graph, edited)
    assert asked == {"toy.mix": 1}  # its users are called as before, but for ids
    assert pricing.problem(edited.graph) is pricing.after(made.graph, edited)
    assert asked == {"toy.mix": 1}
