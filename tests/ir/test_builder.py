"""GraphBuilder: versions, effects by row or by word, names, loops."""

import math

import pytest

from neaptide.errors import VerifyError
from neaptide.ir.builder import GraphBuilder
from neaptide.ir.nodes import Access, Effects, Named, Ref
from neaptide.ir.registry import Call, OpRegistry, OpSpec, Trait
from neaptide.ir.values import Kind
from neaptide.symbolic.size_expr import SizeExpr
from support.hand_graphs import in_place_graph, loop_graph

ROWS = OpRegistry(
    [
        OpSpec("toy.relu"),
        OpSpec("toy.relu_", writes=(0,)),
        OpSpec("toy.slice", traits=frozenset({Trait.VIEW})),
        OpSpec("toy.copy_", writes=(0,), shape_only=(0,)),
        OpSpec("toy.like", shape_only=(0, "other")),
        OpSpec("toy.drop", rng=True, rng_if=lambda call: call.arg(1) != 0.0),
        OpSpec("toy.item", host=True),
        OpSpec("toy.norm", writes_if=lambda call: (1,) if call.value(1) is not None else ()),
        OpSpec("toy.many_", writes=(0,)),
        OpSpec("toy.out", writes=("out",), shape_only=("out",)),
    ]
)


@pytest.fixture
def b():
    return GraphBuilder("g", ROWS)


@pytest.fixture
def x(b):
    return b.input("x", (4,))


def last(b) -> Effects:
    return b.nodes[-1].effects


def test_a_pure_row_reads_all_operands(b, x):
    b.node("toy.relu", x, outputs=["y: f32[4]"])
    assert last(b) == Effects(reads=(Access(0, 0),))


def test_a_row_that_overwrites_makes_the_next_version(b, x):
    (y,) = b.node("toy.relu_", x, outputs=["y: f32[4] @x"])
    b.node("toy.relu_", x, outputs=["z: f32[4] @y"])
    assert last(b) == Effects(reads=(Access(0, 1),), writes=(Access(0, 2),))
    assert b.values[y].version == 1


def test_a_view_reads_nothing(b, x):
    (v,) = b.node("toy.slice", x, 1, outputs=["v: f32[2] offset(1) @x"])
    assert last(b) == Effects()
    assert b.values[v].storage == b.values[x].storage


def test_shape_only_operands_are_not_read(b, x):
    y = b.input("y", (4,))
    b.node("toy.like", x, y, outputs=["z: f32[4]"])
    assert last(b).reads == (Access(1, 0),)
    b.node("toy.like", y, x, outputs=["w: f32[4]"], kwargs={"other": x})
    assert last(b).reads == ()
    b.node("toy.copy_", x, y)
    assert last(b) == Effects(reads=(Access(1, 0),), writes=(Access(0, 1),))


def test_effects_that_depend_on_the_call(b, x):
    b.node("toy.drop", x, 0.0, outputs=["a: f32[4]"])
    assert last(b).rng is None
    b.node("toy.drop", x, 0.5, outputs=["a: f32[4]"])
    assert last(b).rng == "cpu"
    b.node("toy.item", x, outputs=["n: host f32"])
    assert last(b).host
    stats = b.input("stats", (4,), kind=Kind.BUFFER)
    b.node("toy.norm", x, None, outputs=["c: f32[4]"])
    assert last(b).writes == ()
    b.node("toy.norm", x, stats, outputs=["c: f32[4]"])
    assert [a.storage for a in last(b).writes] == [b.values[stats].storage]


def test_lists_and_keywords_can_be_overwritten(b, x):
    y = b.input("y", (4,))
    b.node("toy.many_", [x, y])
    assert [a.storage for a in last(b).writes] == [0, 1]
    b.node("toy.out", x, kwargs={"out": y}, outputs=["z: f32[4] @y"])
    assert last(b) == Effects(reads=(Access(0, 1),), writes=(Access(1, 2),))


def test_an_op_without_a_row_reads_all_but_for_views(b, x):
    b.node("toy.unknown", x, outputs=["y: f32[4]"])
    assert last(b).reads == (Access(0, 0),)
    b.node("toy.unknown_view", x, outputs=["v: f32[4] @x"])
    assert last(b).reads == ()
    b.node("toy.unknown_", x, outputs=["w: f32[4] @x"], writes=[x], reads=[])
    assert last(b) == Effects(writes=(Access(0, 1),))


def test_values_that_stand_twice_are_one_input(b, x):
    b.node("toy.relu", x, [x, 3, [x]], outputs=["y: f32[4]"], kwargs={"z": x, "a": Named("dtype", "float32")})
    node = b.nodes[-1]
    assert node.inputs == (x,)
    assert node.args == (Ref(0), (Ref(0), 3, (Ref(0),)))
    assert [key for key, _ in node.kwargs] == ["a", "z"]


def test_plain_ints_are_numbers(b, x):
    b.node("toy.relu", x, 0, outputs=["y: f32[4]"])
    assert b.nodes[-1].args == (Ref(0), 0)


def test_names_become_unique_identifiers(b):
    names = [b.values[b.input(name, (1,))].name for name in ("a.b", "a b", "a_b", "a_b_1", "3", "", "é")]
    assert len(set(names)) == len(names)
    assert names[0] == "a_b"
    assert names[4] == "v3"
    b.finish()


def test_every_nan_is_the_same_object(b, x):
    the_one = math.nan
    b.node("toy.relu", x, float("nan"), [float("nan")], outputs=["y: f32[4]"])
    assert b.nodes[-1].args[1] is the_one
    assert b.nodes[-1].args[2][0] is the_one


def test_storages_can_be_shared_between_inputs(b):
    shared = b.storage(64, kind=Kind.PARAMETER, name="tied")
    b.input("a", (16,), storage=shared)
    b.input("c", (4, 4), storage=shared)
    graph = b.finish()
    assert graph.input_storages() == (0,)
    assert b.current_version(shared) == 0


def test_a_view_of_what_is_no_tensor_is_refused(b):
    b.scalar("n")
    with pytest.raises(VerifyError, match="no tensor"):
        b.node("toy.view", outputs=["v: f32[1] @n"])
    with pytest.raises(VerifyError, match="no tensor"):
        b.node("toy.view", outputs=["v: f32[1] @nobody"])


def test_finish_verifies(b, x):
    b.node("toy.slice", x, outputs=["v: f32[5] @x"])
    with pytest.raises(VerifyError, match="outside its storage"):
        b.finish()


def test_hand_graphs_say_what_they_mean():
    graph = in_place_graph()
    assert [s.name for s in graph.segments] == ["forward", "backward"]
    assert graph.created_storages(graph.nodes[2]) == ()
    assert graph.created_storages(graph.nodes[0]) == (2,)
    loop = loop_graph()
    assert loop.nodes[0].effects.reads == (Access(0, 0), Access(1, 0))
    assert loop.nodes[0].regions[0].trip_count == SizeExpr.const(3)


def test_rows_are_asked_with_the_values_of_the_builder():
    seen = []

    def writes_if(call: Call):
        seen.append(call.output().name)
        return ()

    b = GraphBuilder("g", OpRegistry([OpSpec("toy.a", writes_if=writes_if)]))
    b.node("toy.a", b.input("x", (1,)), outputs=["y: f32[1]"])
    assert seen == ["y"]
