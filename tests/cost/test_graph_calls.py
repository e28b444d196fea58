"""Calls where they stand: how often each runs, and which operands are near, counted in bytes since they were touched last."""

from neaptide.cost.timing.graph_calls import GraphCalls, LatelyTouched
from neaptide.ir.builder import GraphBuilder
from neaptide.ops import registry
from neaptide.symbolic.size_expr import SizeExpr
from support.hand_graphs import looped
from support.together import together

KIB = 1024


def products_in(parts):
    """Rows, near operands and number of runs of each product that is played: eight rows times a matrix in some parts."""
    part, step = SizeExpr.dim("part"), -(-8 // parts)
    body = GraphBuilder("body", registry())
    rows, weight = body.input("rows", (part, 4)), body.input("weight", (4, 4))
    (made,) = body.node("aten.mm.default", rows, weight, outputs=["made: f32[{part}, 4]"])
    body.output(made)
    graph = looped(body, parts, step, ["y: f32[8, 4]"], x=(8, 4), w=(4, 4))
    played = GraphCalls(graph, "here", {}).placed(cache_bytes=10**6)
    found = [c for c in played if c.keyed.call.op == "aten.mm.default"]
    return [(c.keyed.call.operands[0].shape[0], c.near, c.times) for c in found]


@together(
    ("parts", "expected"),
    [
        (1, [(8, (), 1)]),
        (2, [(4, (), 1), (4, (1,), 1)]),
        (3, [(3, (), 1), (3, (1,), 1), (2, (1,), 1)]),
        (4, [(2, (), 1), (2, (1,), 3)]),
    ],
)
def test_what_all_trips_share_is_near_in_another_trip_and_a_new_part_is_not(parts, expected):
    assert products_in(parts) == expected


@together(
    ("ops", "cache_bytes", "expected"),
    [
        ([("relu.default", "x"), ("add.Tensor", "v0", "y")], 100 * KIB, (0,)),
        # Since v0 was made, two calls have touched 2 KiB each.
        (
            [("relu.default", "x"), ("exp.default", "y"), ("exp.default", "v1"), ("add.Tensor", "v0", "v2")],
            4 * KIB,
            (0, 1),
        ),
        (
            [("relu.default", "x"), ("exp.default", "y"), ("exp.default", "v1"), ("add.Tensor", "v0", "v2")],
            4 * KIB - 1,
            (1,),
        ),
        # A view touches nothing and shows what was touched.
        ([("relu.default", "x"), ("alias.default", "v0"), ("exp.default", "v1")], 2 * KIB, (0,)),
    ],
)
def test_near_is_what_was_touched_lately(ops, cache_bytes, expected):
    """An operation is a name and operands; results are of 1 KiB, and the last one's near operands are asked for."""
    b = GraphBuilder("calls", registry())
    made = {"x": b.input("x", (256,)), "y": b.input("y", (256,))}
    for number, (op, *operands) in enumerate(ops):
        result = f"v{number}: f32[256]" + (f" @{operands[0]}" if op.startswith("alias") else "")
        (made[f"v{number}"],) = b.node(f"aten.{op}", *(made[name] for name in operands), outputs=[result])
    b.output(made[f"v{len(ops) - 1}"])
    graph = b.finish()
    touched = LatelyTouched(graph, {}, cache_bytes)
    assert [touched.slots(node) for node in graph.nodes][-1] == expected
