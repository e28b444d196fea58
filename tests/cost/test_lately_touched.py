"""Which operands are near: counted in bytes since they were touched last."""

from neaptide.cost.graph_calls import LatelyTouched
from neaptide.ir.builder import GraphBuilder
from neaptide.ops import registry

KIB = 1024


def near(ops, cache_bytes):
    """Near operands of each operation of a program; an operation is a name and operands, results are of 1 KiB."""
    b = GraphBuilder("calls", registry())
    made = {"x": b.input("x", (256,)), "y": b.input("y", (256,))}
    for number, (op, *operands) in enumerate(ops):
        (made[f"v{number}"],) = b.node(
            f"aten.{op}", *(made[name] for name in operands), outputs=[result(op, number, operands)]
        )
    b.output(made[f"v{len(ops) - 1}"])
    graph = b.finish()
    touched = LatelyTouched(graph, {}, cache_bytes)
    return [touched.slots(node) for node in graph.nodes]


def result(op, number, operands):
    return f"v{number}: f32[256]" + (f" @{operands[0]}" if op.startswith("alias") else "")


def test_what_was_just_made_is_near_and_inputs_are_not():
    assert near([("relu.default", "x"), ("add.Tensor", "v0", "y")], 100 * KIB) == [(), (0,)]


def test_what_was_touched_too_long_ago_is_not_near():
    ops = [("relu.default", "x"), ("exp.default", "y"), ("exp.default", "v1"), ("add.Tensor", "v0", "v2")]
    # Since v0 was made, two calls have touched 2 KiB each.
    assert near(ops, 4 * KIB)[-1] == (0, 1)
    assert near(ops, 4 * KIB - 1)[-1] == (1,)


def test_a_view_touches_nothing_and_shows_what_was_touched():
    ops = [("relu.default", "x"), ("alias.default", "v0"), ("exp.default", "v1")]
    assert near(ops, 2 * KIB) == [(), (), (0,)]
