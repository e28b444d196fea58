"""Calls where they stand: how often each runs, and what is near in another trip of a loop."""

from neaptide.cost.graph_calls import GraphCalls
from neaptide.ir.builder import GraphBuilder
from neaptide.ir.nodes import MergeMap, SliceMap
from neaptide.ops import registry
from neaptide.symbolic.size_expr import SizeExpr


def rows_in_parts(parts):
    """Eight rows times a matrix in some parts."""
    part, step = SizeExpr.dim("part"), -(-8 // parts)
    body = GraphBuilder("body", registry())
    rows, weight = body.input("rows", (part, 4)), body.input("weight", (4, 4))
    (made,) = body.node("aten.mm.default", rows, weight, outputs=["made: f32[{part}, 4]"])
    body.output(made)
    b = GraphBuilder("loop", registry())
    x, w = b.input("x", (8, 4)), b.input("w", (4, 4))
    (y,) = b.loop(
        body.finish(), parts, [x, w], outputs=["y: f32[8, 4]"],
        slices=[SliceMap(0, 0, SizeExpr.const(step))], merges=[MergeMap(0, "concat", 0)],
    )  # fmt: skip
    b.output(y)
    return GraphCalls(b.finish(), "here", {})


def products(calls, cache_bytes):
    """Rows, near operands and number of runs of each product that is played."""
    found = [c for c in calls.placed(lambda _key: None, cache_bytes) if c.keyed.call.op == "aten.mm.default"]
    return [(c.keyed.call.operands[0].shape[0], c.near, c.times) for c in found]


def test_what_all_trips_share_is_near_in_another_trip_and_a_new_part_is_not():
    assert products(rows_in_parts(4), 10**6) == [(2, (), 1), (2, (1,), 3)]


def test_a_shorter_last_trip_finds_near_what_all_trips_share():
    assert products(rows_in_parts(3), 10**6) == [(3, (), 1), (3, (1,), 1), (2, (1,), 1)]


def test_one_trip_is_played_where_nothing_is_near():
    assert products(rows_in_parts(4), 0) == [(2, (), 1)]


def test_runs_add_up_to_those_of_the_program():
    for parts in (1, 2, 4, 8):
        assert sum(times for _, _, times in products(rows_in_parts(parts), 10**6)) == parts
