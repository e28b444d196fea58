"""Fingerprint: blind to names and numbering, not to anything else."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from neaptide.ir.fingerprint import fingerprint
from neaptide.ir.graph import Segment
from neaptide.ir.nodes import Source
from neaptide.ir.text.parser import renumbered
from neaptide.ir.values import Kind
from neaptide.symbolic.size_expr import SizeExpr
from support.drawn import graphs
from support.hand_graphs import in_place_graph, loop_graph
from support.together import together


@given(graphs(max_nodes=10), st.randoms(use_true_random=False))
def test_names_sources_and_numbering_do_not_matter(graph, shuffle):
    values, storages = list(range(len(graph.values))), list(range(len(graph.storages)))
    shuffle.shuffle(values)
    shuffle.shuffle(storages)
    other = renumbered(graph, values, storages)
    other = replace(
        other,
        name="other",
        values=tuple(replace(v, name=f"renamed_{v.id}") for v in other.values),
        storages=tuple(replace(s, name="") for s in other.storages),
        nodes=tuple(replace(n, source=Source("x.py", n.id)) for n in other.nodes),
    )
    assert fingerprint(other) == fingerprint(graph)


@given(graphs(max_nodes=6), graphs(max_nodes=6))
def test_different_graphs_differ(a, b):
    assert (fingerprint(a) == fingerprint(b)) == (replace(a, name="") == replace(b, name=""))


def _node(graph, number, **changes):
    nodes = list(graph.nodes)
    nodes[number] = replace(nodes[number], **changes)
    return replace(graph, nodes=tuple(nodes))


def _value(graph, number, **changes):
    values = list(graph.values)
    values[number] = replace(values[number], **changes)
    return replace(graph, values=tuple(values))


def _storage(graph, number, **changes):
    storages = list(graph.storages)
    storages[number] = replace(storages[number], **changes)
    return replace(graph, storages=tuple(storages))


@together(
    "change",
    [
        lambda g: _node(g, 0, op="aten.matmul.default"),
        lambda g: _node(g, 0, args=(*g.nodes[0].args, 1)),
        lambda g: _node(g, 0, kwargs=(("a", 1),)),
        lambda g: _node(g, 0, kwargs=(("a", 1.0),)),
        lambda g: _node(g, 3, results=None),
        lambda g: _node(g, 0, effects=replace(g.nodes[0].effects, host=True)),
        lambda g: _node(g, 0, effects=replace(g.nodes[0].effects, reads=())),
        lambda g: _value(g, 0, dtype="int32"),
        lambda g: _value(g, 0, shape=(SizeExpr.const(32),), strides=(SizeExpr.const(1),)),
        lambda g: _storage(g, 0, nbytes=SizeExpr.const(4096)),
        lambda g: _storage(g, 0, kind=Kind.BUFFER),
        lambda g: _storage(g, 0, device="cuda:1"),
        lambda g: replace(g, outputs=g.outputs[::-1]),
        lambda g: replace(g, segments=(Segment("", 0, len(g.nodes)),)),
    ],
)
def test_every_other_change_matters(change):
    graph = in_place_graph()
    assert fingerprint(change(graph)) != fingerprint(graph)


def test_the_body_of_a_loop_matters():
    graph = loop_graph()
    loop = graph.nodes[0].regions[0]
    body = _node(loop.body, 0, op="toy.other")
    for other in (
        replace(loop, body=body),
        replace(loop, trip_count=SizeExpr.const(4)),
        replace(loop, slices=()),
    ):
        assert fingerprint(_node(graph, 0, regions=(other,))) != fingerprint(graph)


def test_fingerprint_is_stable_between_versions():
    # Plans refer to graphs by it: when this changes, the version in ir.fingerprint must change as well.
    assert fingerprint(loop_graph()) == "ef290ce6b18b8a29a3d5dd4ae7aa00fb7efde71d94d5a060a6eefd1f0d33f8eb"
