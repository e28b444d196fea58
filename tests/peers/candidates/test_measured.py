"""Candidates priced by measured operations: as the whole graph is, and only what is touched is looked at."""

from __future__ import annotations

import pytest

import neaptide.cost.graph_calls as graph_calls_module
from frontends import steps
from neaptide.cost.cache import OpCostCache
from neaptide.cost.measured import MeasuredCost
from neaptide.cost.model import EstimatedCost
from neaptide.cost.presets import get_device
from neaptide.frontends.torch_step import capture_step
from neaptide.ir.edit import GraphEdit, NodeDraft
from neaptide.ir.nodes import Ref
from neaptide.ops import registry
from neaptide.planner.pricing import Pricing
from neaptide.schedule.evaluate import Evaluator
from neaptide_peers.candidates.judge import judge_candidate
from neaptide_peers.candidates.standing import Standing

REGISTRY = registry()


@pytest.fixture(scope="module")
def graph():
    step, batch = steps.batch_norm()
    return capture_step(step, (batch,)).steady.graph


@pytest.fixture(scope="module")
def cost(graph, tmp_path_factory):
    path = tmp_path_factory.mktemp("cache") / "costs"
    made = MeasuredCost(REGISTRY, OpCostCache(path), fallback=EstimatedCost(get_device("a100-80g"), REGISTRY))
    made.prepare(graph)
    return made


def with_copies(graph, count):
    """Copies between some nodes and their first users."""
    users, edit = graph.consumers(), GraphEdit(graph)
    plain = [n for n in graph.nodes if n.outputs and n.effects.is_pure and users[n.outputs[0]]]
    for node in [n for n in plain if graph.values[n.outputs[0]].storage is not None][:count]:
        value = node.outputs[0]
        was = graph.values[value]
        copy = edit.fresh("copy", was.dtype, was.shape)
        edit.insert_after(node.id, NodeDraft("aten.clone.default", (value,), (copy,), (Ref(0),)))
        edit.replace_uses(value, copy, users[value][:1])
    return edit.finish()


def test_it_costs_what_the_whole_graph_says(graph, cost):
    standing = Standing(graph, Pricing(cost, REGISTRY))
    edited = with_copies(graph, 3)
    found = judge_candidate(standing, edited)
    assert not found.refusal
    step = Pricing(cost, REGISTRY).problem(edited.graph)
    assert found.peak_with_workspace_bytes == Evaluator(step, found.sequence()).peak
    assert found.seconds == step.sequence_seconds(found.sequence())


def test_only_what_is_touched_is_looked_at(graph, cost, monkeypatch):
    standing = Standing(graph, Pricing(cost, REGISTRY))
    seen = []
    asked = graph_calls_module.call_key
    monkeypatch.setattr(
        graph_calls_module, "call_key", lambda at, node: seen.append(node.id) or asked(at, node)
    )
    edited = with_copies(graph, 1)
    assert not judge_candidate(standing, edited).refusal
    touched = standing.pricing.repriced(
        edited, standing.users, {old: new for new, old in enumerate(edited.node_of)}.get
    )
    makers = {edited.graph.producer(value) for n in touched for value in edited.graph.nodes[n].inputs}
    assert set(seen) <= makers.union(touched)
    assert len(seen) == len(set(seen)) < len(graph.nodes) / 2
