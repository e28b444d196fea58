"""The verifier: each broken rule is found, named and shown with its neighbourhood."""

from dataclasses import replace

import pytest
from hypothesis import given

from neaptide.errors import VerifyError
from neaptide.ir.builder import GraphBuilder
from neaptide.ir.graph import Graph, Segment
from neaptide.ir.nodes import Access, Effects, MergeMap, Ref, SliceMap
from neaptide.ir.verify import verify
from neaptide.symbolic.size_expr import SizeExpr
from neaptide_corpus.random_graphs import random_graph
from neaptide_corpus.training_steps import toy_registry
from support.drawn import graphs
from support.hand_graphs import in_place_graph, loop_graph
from support.together import together


def _put(items, number, **changes):
    changed = list(items)
    changed[number] = replace(changed[number], **changes)
    return tuple(changed)


def _node(number, **changes):
    return lambda g: replace(g, nodes=_put(g.nodes, number, **changes))


def _value(number, **changes):
    return lambda g: replace(g, values=_put(g.values, number, **changes))


def _effects(number, **changes):
    return lambda g: _node(number, effects=replace(g.nodes[number].effects, **changes))(g)


# In `in_place_graph`: values x w h v r d n late; storages x w h d late; node 2 is relu_, which writes storage 2.
FAULTS = [
    (_node(1, id=5), "has the id 5"),
    (_value(1, id=5), "has the id 5"),
    (lambda g: replace(g, storages=_put(g.storages, 0, id=9)), "has the id 9"),
    (lambda g: replace(g, storages=_put(g.storages, 0, nbytes=SizeExpr.const(-1))), "negative size"),
    (_value(1, name="x"), "two values are called %x"),
    (_value(1, name="a b"), "no identifier"),
    (_value(2, dtype="float33"), "unknown dtype"),
    (_value(2, storage=77), "does not exist"),
    (_value(2, strides=()), "0 strides"),
    (_value(2, offset=SizeExpr.const(1)), "outside its storage"),
    (_value(3, strides=(SizeExpr.const(1), SizeExpr.const(9))), "outside its storage"),
    (_value(2, offset=SizeExpr.const(-1)), "outside its storage"),
    (_value(4, version=0), "sees version 0 .* at version 1"),
    (_value(6, version=1), "host scalar"),
    (_node(0, op="mm"), "no name of an operation"),
    (_node(0, inputs=(0, 5)), "value %d is used before it is made"),
    (_node(0, inputs=(0, 99)), "value 99, which does not exist, is used"),
    (_node(0, args=(Ref(0),)), r"refer to inputs \[0\]"),
    (_node(0, args=(Ref(0), Ref(1), Ref(2))), r"refer to inputs \[0, 1, 2\]"),
    (_node(0, kwargs=(("b", 1), ("a", 1))), "not sorted"),
    (_node(0, kwargs=(("a", 1), ("a", 1))), "not sorted"),
    (_node(0, kwargs=(("a b", 1),)), "no name of an argument"),
    (_node(0, results=(Ref(1),)), "outputs that the node does not have"),
    (_node(1, outputs=(2,)), "%h is made twice"),
    (_node(1, outputs=(0,)), "%x is made twice"),
    (_node(0, op="neaptide.loop"), "exactly one region"),
    (_effects(0, reads=(Access(0, 1),)), "expected version 0"),
    (_effects(0, reads=(Access(0, 0), Access(0, 0))), "reads a storage twice"),
    (_effects(0, reads=(Access(4, 0),)), "does not exist yet"),
    (_effects(3, reads=(Access(0, 0),)), "no input of it sees"),
    (_effects(2, writes=(Access(2, 2),)), "expected version 1"),
    (_effects(2, writes=()), "sees version 1"),
    (lambda g: replace(g, outputs=(99,)), "output value 99"),
    (lambda g: replace(g, inputs=(0, 0)), "made twice"),
    (lambda g: replace(g, inputs=(0,)), "%w is used before"),
    (lambda g: replace(g, storages=(*g.storages, replace(g.storages[0], id=5))), "seen by no value"),
    (
        lambda g: replace(g, values=(*g.values, replace(g.values[0], id=8, name="o"))),
        "neither an input nor made",
    ),
    (lambda g: replace(g, segments=(Segment("a", 0, 3),)), "partition"),
    (lambda g: replace(g, segments=(Segment("a", 0, 4), Segment("b", 3, 7))), "partition"),
    (lambda g: replace(g, segments=(Segment("a", 0, 9), Segment("b", 9, 7))), "ends before"),
]


@together(("change", "message"), FAULTS)
def test_broken_rules_are_found(change, message):
    with pytest.raises(VerifyError, match=message):
        verify(change(in_place_graph()))


LOOP_FAULTS = [
    (lambda loop: {"trip_count": SizeExpr.const(0)}, "0 trips"),
    (lambda loop: {"merges": loop.merges[:1]}, "the loop 2 and 1 merges"),
    (lambda loop: {"merges": (loop.merges[0], loop.merges[0])}, "each of the 2 outputs once"),
    (lambda loop: {"merges": (replace(loop.merges[0], how="max"), loop.merges[1])}, "a merge is 'max'"),
    (lambda loop: {"merges": (loop.merges[0], replace(loop.merges[1], how="sum"))}, "another shape"),
    (lambda loop: {"merges": (loop.merges[0], replace(loop.merges[1], axis=2))}, "axis 2"),
    (lambda loop: {"slices": (replace(loop.slices[0], input=5),)}, "slices input 5"),
    (lambda loop: {"slices": (loop.slices[0], loop.slices[0])}, "twice"),
    (lambda loop: {"slices": (replace(loop.slices[0], axis=-1),)}, "axis -1"),
    (lambda loop: {"slices": ()}, "another shape"),
    (lambda loop: {"body": replace(loop.body, inputs=loop.body.inputs[:1])}, "1 inputs, the loop 2"),
    (lambda loop: {"body": _node(0, inputs=(0, 3))(loop.body)}, "breaks a rule: value %out is used before"),
    (lambda loop: {"body": replace(loop.body, outputs=loop.body.inputs[:1])}, "hands back values"),
    (lambda loop: {"body": _node(2, effects=Effects())(loop.body)}, "never writes result 0"),
    (lambda loop: {"trip_count": SizeExpr.const(2)}, "2 parts of 3 do not make up the 8 elements"),
    (
        lambda loop: {"slices": (replace(loop.slices[0], before=1, after=1),)},
        "3 parts of 3 do not make up the 6",
    ),
    (lambda loop: {"slices": (replace(loop.slices[0], after=-1),)}, "negative halo"),
    (
        lambda loop: {"body": _rows_of(loop.body, SizeExpr.const(3))},
        "as long in each trip, and not as the parts",
    ),
    (
        lambda loop: {"body": _joined(loop.body, SizeExpr.dim("part") - 1)},
        "parts of result 0 make up 5 of its 8",
    ),
]


def _rows_of(body, rows):
    """The body of a loop with another number of rows in its first input."""
    value = body.values[0]
    return replace(body, values=_put(body.values, 0, shape=(rows, *value.shape[1:])))


def _joined(body, rows):
    """The body of a loop whose joined result has parts of another number of rows."""
    number = body.inputs[-1]
    return replace(body, values=_put(body.values, number, shape=(rows, *body.values[number].shape[1:])))


@together(("changes", "message"), LOOP_FAULTS)
def test_broken_loops_are_found(changes, message):
    with pytest.raises(VerifyError, match=message):
        verify(_loop_with(changes))


def _loop_with(changes):
    graph = loop_graph()
    region = graph.nodes[0].regions[0]
    return _node(0, regions=(replace(region, **changes(region)),))(graph)


def adding_graph(slices=(), *, says=True):
    """A loop whose body adds to one of its inputs, a gradient that is there before."""
    long = 4 + sum(s.halo for s in slices)
    body = GraphBuilder("body", toy_registry())
    into, part = body.input("into", (long,)), body.input("part", (4,))
    body.node("toy.mix_", into, part, outputs=[f"mixed: f32[{long}] @into"], writes=[into])
    b = GraphBuilder("adding", toy_registry())
    x, y = b.input("x", (long,)), b.input("y", (4,))
    b.loop(body.finish(), 1, [x, y], outputs=[], slices=slices)
    b.output(x)
    found = b.finish()
    return found if says else _node(0, effects=replace(found.nodes[0].effects, writes=()))(found)


def test_a_body_may_add_to_an_input_when_the_loop_says_so():
    graph = adding_graph()
    assert graph.nodes[0].effects.writes == (Access(0, 1),)
    with pytest.raises(VerifyError, match="overwrites one of its inputs, which the loop does not say"):
        verify(adding_graph(says=False))


def test_parts_that_overlap_are_not_written():
    with pytest.raises(VerifyError, match="overwrites an input whose parts overlap"):
        adding_graph([SliceMap(0, 0, SizeExpr.const(4), 1, 0)])


@together(
    ("effect", "message"),
    [
        ({"rng": "cpu"}, "draws from cpu"),
        ({"collective": "all"}, "takes part in all"),
        ({"host": True}, "the host"),
    ],
)
def test_a_loop_says_what_its_body_does_beside_its_results(effect, message):
    body = GraphBuilder("body", toy_registry())
    part = body.input("part", (4,))
    (out,) = body.node("toy.mix", part, outputs=["out: f32[4]"], **effect)
    body.output(out)
    b = GraphBuilder("drawing", toy_registry())
    x = b.input("x", (4,))
    (y,) = b.loop(body.finish(), 1, [x], outputs=["y: f32[4]"], merges=[MergeMap(0, "sum")])
    b.output(y)
    graph = b.finish()
    assert not graph.nodes[0].effects.is_pure
    silent = _node(0, effects=Effects(graph.nodes[0].effects.reads))(graph)
    with pytest.raises(VerifyError, match=message):
        verify(silent)


def test_the_neighbourhood_is_shown_with_the_fault_marked():
    graph = random_graph(3, 40, in_place=False)
    broken = _node(20, kwargs=(("b", 1), ("a", 2)))(graph)
    with pytest.raises(VerifyError) as raised:
        verify(broken)
    lines = (raised.value.where or "").splitlines()
    assert lines[0] == "node 20 of graph 'random_3'"
    assert [int(line.replace(">>", "").split()[0]) for line in lines[1:]] == list(range(10, 31))
    assert [line.strip().startswith(">>") for line in lines[1:]].index(True) == 10


def test_views_of_unknown_size_are_not_judged():
    verify(loop_graph())


@given(graphs())
def test_random_graphs_are_valid(graph: Graph):
    verify(graph)
