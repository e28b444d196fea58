"""What `cost.model.CostModel` promises, of every model: on a step, and on a loop."""

from __future__ import annotations

import copy
import math

import pytest

pytest.importorskip("torch")

from cost.node_costs import node_seconds
from cost.test_measured import FALLBACK, small_step
from neaptide.cost.cache import OpCostCache
from neaptide.cost.measured import MeasuredCost
from neaptide.cost.model import CostModel, EstimatedCost, KnownCost
from neaptide.ir.builder import GraphBuilder
from neaptide.ops import registry
from neaptide.symbolic.size_expr import SizeExpr
from support.hand_graphs import looped
from support.together import together


def of_rows():
    """A loop over eight rows, three a trip, that allocates a result in each."""
    body = GraphBuilder("body", registry())
    p = body.input("p", (SizeExpr.dim("part"), 100))
    (q,) = body.node("aten.relu.default", p, outputs=["q: f32[{part}, 100]"])
    body.output(q)
    return looped(body, 3, 3, ["y: f32[8, 100]"], x=(8, 100))


def measured(graph, folder):
    cost = MeasuredCost(registry(), OpCostCache(folder / "costs"), fallback=FALLBACK)
    cost.prepare(graph)
    return cost


MODELS = {
    EstimatedCost: lambda *_: FALLBACK,
    MeasuredCost: measured,
    KnownCost: lambda graph, folder: KnownCost.of(measured(graph, folder), graph, {}),
}
GRAPHS = {"step": small_step, "loop": of_rows}


def test_every_model_is_among_them():
    ours = {kind.__name__ for kind in CostModel.__subclasses__() if kind.__module__.startswith("neaptide.")}
    assert ours == {kind.__name__ for kind in MODELS}


@together("kind", MODELS)
@together("name", GRAPHS)
def test_numbers_are_the_same_again_and_the_graph_and_the_model_stay_as_they_are(kind, name, tmp_path):
    graph = GRAPHS[name]()
    cost, before = MODELS[kind](graph, tmp_path), copy.deepcopy(graph)
    seconds = node_seconds(cost, graph)
    assert seconds == node_seconds(cost, graph)
    assert all(math.isfinite(one) and one >= 0 for one in (*seconds, cost.call_s))
    assert any(seconds)
    assert all(cost.workspace_bytes(graph, node) >= 0 for node in graph.nodes)
    assert graph == before
    under, binding = cost.under({"part": 2}), dict(cost.binding)
    assert (under.binding, cost.binding, under.is_measured) == ({"part": 2}, binding, cost.is_measured)


@together("kind", MODELS)
@together("name", GRAPHS)
def test_bytes_of_storages_are_those_of_the_nodes_that_are_asked_for(kind, name, tmp_path):
    graph = GRAPHS[name]()
    cost = MODELS[kind](graph, tmp_path)
    whole = dict(cost.storage_bytes(graph))
    for node in graph.nodes:
        created = set(graph.created_storages(node))
        assert dict(cost.storage_bytes(graph, [node])) == {s: n for s, n in whole.items() if s in created}


@together("kind", MODELS)
def test_a_loop_takes_its_trips_and_their_calls(kind, tmp_path):
    graph = of_rows()
    cost = MODELS[kind](graph, tmp_path)
    (node,) = graph.nodes
    (part,) = node.regions[0].body.nodes[:1]
    body = node.regions[0].body
    each = [cost.under({"part": rows}).node_seconds(body, part, {"part": rows}) for rows in (3, 2)]
    assert cost.seconds(graph, node) >= 2 * each[0] + each[1] + 3 * cost.call_s
    assert cost.workspace_bytes(graph, node) == 3 * 100 * 4
