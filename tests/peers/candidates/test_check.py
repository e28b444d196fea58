"""Candidates are checked as the slow way checks them: compile, play every byte, check every step."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ir.random_edits import edited_graphs
from neaptide.analysis.legality.schedule import check_schedule
from neaptide.analysis.profile_bytes import memory_profile
from neaptide.cost.model import EstimatedCost
from neaptide.cost.presets import get_device
from neaptide.errors import VerifyError
from neaptide.ir.edits.edit import GraphEdit, NodeDraft
from neaptide.ir.nodes import Ref
from neaptide.ir.schedule import Schedule
from neaptide.planner import pricing as pricing_module
from neaptide.planner.pricing import Pricing
from neaptide.schedule.evaluate import Evaluator
from neaptide_corpus.training_steps import toy_registry, transformer_step
from neaptide_peers.candidates.check import check_candidate
from neaptide_peers.candidates.standing import Standing
from peers.candidates.seen_cost import SeenCost
from support.drawn import examples, graphs, node_orders, segmented

REGISTRY = toy_registry()


def is_legal(graph, sequence):
    try:
        check_schedule(graph, Schedule.from_nodes(graph, sequence), REGISTRY)
    except VerifyError:
        return False
    return True


@st.composite
def sequences(draw, graph):
    """A legal order with repetitions."""
    sequence = list(draw(node_orders(graph)))
    for _ in range(draw(st.integers(0, 4))):
        node = draw(st.sampled_from(sequence))
        place = draw(st.integers(sequence.index(node) + 1, len(sequence)))
        longer = [*sequence[:place], node, *sequence[place:]]
        if is_legal(graph, longer):
            sequence = longer
    return tuple(sequence)


@pytest.mark.parametrize("is_measured", [False, True])
@settings(max_examples=examples(300))
@given(st.data())
def test_a_candidate_is_judged_as_the_whole_graph_is(is_measured, data):
    graph = data.draw(graphs(min_nodes=1, max_nodes=12).flatmap(segmented))
    sequence = data.draw(sequences(graph))
    edited = data.draw(edited_graphs(graph))
    pricing = Pricing(SeenCost(is_measured), REGISTRY)
    found = check_candidate(Standing(graph, pricing, sequence), edited)
    mapped = found.sequence()
    assert (not found.refusal) == is_legal(edited.graph, mapped), found.refusal
    if found.refusal:
        return
    whole = Pricing(pricing.cost, REGISTRY)
    step, prices = whole.problem(edited.graph), whole.prices(edited.graph)
    assert found.peak_with_workspace_bytes == Evaluator(step, mapped).peak
    assert found.seconds == step.sequence_seconds(mapped)
    profile = memory_profile(
        edited.graph,
        Schedule.from_nodes(edited.graph, mapped),
        workspace=prices.workspace,
        storage_bytes=prices.storage_bytes,
    )
    assert found.peak_with_workspace_bytes == profile.peak_with_workspace_bytes


def test_a_check_compiles_nothing(monkeypatch):
    made = transformer_step(layers=1)
    pricing = Pricing(EstimatedCost(get_device("rtx3090"), made.registry), made.registry)
    standing = Standing(made.graph, pricing)
    monkeypatch.delattr(pricing_module, "compile_problem")
    value = made.graph.nodes[4].outputs[0]
    was = made.graph.values[value]
    edit = GraphEdit(made.graph)
    copy = edit.fresh("copy", was.dtype, was.shape)
    edit.insert_after(4, NodeDraft("toy.mix", (value,), (copy,), (Ref(0),)))
    edit.replace_uses(value, copy)
    found = check_candidate(standing, edit.finish())
    assert not found.refusal
    assert found.seconds > standing.problem.baseline_seconds
