from __future__ import annotations

from neaptide.analysis.replay import repeat_rule
from neaptide.ir.builder import GraphBuilder
from neaptide.ir.nodes import Access
from neaptide.ir.registry import OpRegistry, OpSpec, Replay
from neaptide_corpus.training_steps import toy_registry

REGISTRY = toy_registry()


def one_node(op, *, registry=REGISTRY, device="cpu", **extra):
    b = GraphBuilder("one", registry)
    x = b.input("x", (4,), device=device)
    s = b.input("s", (4,), device=device)
    b.node(
        op, x, s, s, s, outputs=[f"y: f32[4] device({device})"] if device != "cpu" else ["y: f32[4]"], **extra
    )
    b.output(0)
    graph = b.finish()
    return graph, graph.nodes[0]


def test_host_and_collective_nodes_are_not_repeated():
    graph, node = one_node("toy.mix", host=True)
    assert "host" in repeat_rule(graph, node, REGISTRY).refusal
    graph, node = one_node("toy.mix", collective="world")
    assert "collective" in repeat_rule(graph, node, REGISTRY).refusal


def test_a_pure_node_reads_what_it_read():
    graph, node = one_node("toy.mix")
    rule = repeat_rule(graph, node, REGISTRY)
    assert rule.is_allowed
    assert rule.reads == node.effects.reads
    assert rule.writes == ()


def test_a_stand_in_sees_only_its_own_arguments():
    registry = OpRegistry([OpSpec("toy.bn", writes=(1,), replay=Replay("toy.bn2", (0,), (0,), ("cpu",)))])
    graph, node = one_node("toy.bn", registry=registry)
    rule = repeat_rule(graph, node, registry)
    assert rule.is_allowed
    assert rule.reads == (Access(graph.values[0].storage, 0),)
    assert rule.writes == ()


def test_a_stand_in_counts_only_where_it_gives_the_same_bits():
    registry = OpRegistry([OpSpec("toy.bn", writes=(1,), replay=Replay("toy.bn2", (0,), (0,), ("cuda",)))])
    graph, node = one_node("toy.bn", registry=registry)
    assert "same bits on cpu" in repeat_rule(graph, node, registry).refusal
    assert repeat_rule(graph, node, registry.with_bits(may_vary=True)).is_allowed


def test_a_write_beside_a_new_storage_or_on_two_storages_is_refused():
    b = GraphBuilder("writes", REGISTRY)
    x = b.input("x", (4,))
    a, c = b.node("toy.split", x, outputs=["a: f32[4]", "c: f32[4]"])
    b.node("toy.mix", a, outputs=["d: f32[4]"], writes=[a])
    b.node("toy.mix", a, c, outputs=[], writes=[a, c])
    graph = b.finish()
    assert "creates another" in repeat_rule(graph, graph.nodes[1], REGISTRY).refusal
    assert "more than one" in repeat_rule(graph, graph.nodes[2], REGISTRY).refusal


def test_a_draw_of_random_numbers_is_repeated_under_its_state():
    graph, node = one_node("toy.mix", rng="cpu")
    rule = repeat_rule(graph, node, REGISTRY)
    assert (rule.refusal, rule.random_stream) == ("", "cpu")
    assert rule.reads == node.effects.reads
    graph, node = one_node("toy.mix", rng="cuda:1")
    assert repeat_rule(graph, node, REGISTRY).random_stream == "cuda:1"
    graph, node = one_node("toy.mix")
    assert repeat_rule(graph, node, REGISTRY).random_stream is None


def test_a_draw_is_not_repeated_where_no_state_can_be_taken():
    graph, node = one_node("toy.mix", rng="mps")
    assert "on mps" in repeat_rule(graph, node, REGISTRY).refusal


def test_an_update_in_place_by_random_numbers_is_repeated_as_a_writer():
    b = GraphBuilder("noise", REGISTRY)
    x = b.input("x", (4,))
    (a,) = b.node("toy.mix", x, outputs=["a: f32[4]"])
    b.node("toy.mix", a, outputs=["n: f32[4] @a"], writes=[a], rng="cpu")
    b.node("toy.mix", x, outputs=["m: f32[4] @x"], writes=[x], rng="cpu")
    graph = b.finish()
    rule = repeat_rule(graph, graph.nodes[1], REGISTRY)
    assert (rule.random_stream, rule.writes) == ("cpu", graph.nodes[1].effects.writes)
    assert "caller owns" in repeat_rule(graph, graph.nodes[2], REGISTRY).refusal
