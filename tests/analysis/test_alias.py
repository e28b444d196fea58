from __future__ import annotations

from neaptide.analysis.alias import is_pure_view, view_base
from neaptide.ir.builder import GraphBuilder
from neaptide_corpus.training_steps import toy_registry


def graph_of_views():
    b = GraphBuilder("views", toy_registry())
    x = b.input("x", (4,))
    (a,) = b.node("toy.mix", x, outputs=["a: f32[4]"])
    (v,) = b.node("toy.view", a, outputs=["v: f32[2, 2] @a"])
    (w,) = b.node("toy.view", v, outputs=["w: f32[4] @v"])
    (r,) = b.node("toy.relu_", w, outputs=["r: f32[4] @w"])
    (u,) = b.node("toy.view", r, outputs=["u: f32[4] @r"])
    b.output(u)
    return b.finish(), {"x": x, "a": a, "v": v, "w": w, "r": r, "u": u}


def test_view_base_stops_at_the_creator_and_at_results_in_place():
    graph, ids = graph_of_views()
    assert view_base(graph, ids["w"]) == ids["a"]
    assert view_base(graph, ids["u"]) == ids["r"]
    assert view_base(graph, ids["x"]) == ids["x"]


def test_only_nodes_without_new_bytes_or_writes_are_pure_views():
    graph, _ = graph_of_views()
    assert [is_pure_view(graph, node) for node in graph.nodes] == [False, True, True, False, True]
