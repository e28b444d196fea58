"""Trips of loops, and that every room reads them alike: the last part may be shorter."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hand_graphs import loop_graph
from neaptide.analysis.bounds import lower_bound_bytes, order_lower_bound_bytes
from neaptide.analysis.loops import trips
from neaptide.analysis.profile_bytes import loop_workspaces, memory_profile
from neaptide.corpus.training_steps import toy_registry
from neaptide.errors import SymbolicError
from neaptide.ir.builder import GraphBuilder
from neaptide.ir.nodes import MergeMap, SliceMap
from neaptide.ir.schedule import Schedule
from neaptide.layout.from_schedule import schedule_buffers
from neaptide.planner.objective import PlannedSequence
from neaptide.schedule.order.from_graph import order_problem
from neaptide.schedule.problem import compile_problem
from neaptide.symbolic.size_expr import SizeExpr


def rows_graph(length: int, step: int, scratch: int = 5):
    """A loop over rows whose body makes `scratch` times its rows on the way."""
    part = SizeExpr.dim("part")
    body = GraphBuilder("body", toy_registry())
    rows = body.input("rows", (part, 2))
    (wide,) = body.node("toy.mix", rows, outputs=[f"wide: f32[{scratch}, {{part}}, 2]"])
    (out,) = body.node("toy.mix", wide, outputs=["out: f32[{part}, 2]"])
    body.output(out)
    b = GraphBuilder("rows", toy_registry())
    x = b.input("x", (length, 2))
    (y,) = b.loop(
        body.finish(),
        -(-length // step),
        [x],
        outputs=[f"y: f32[{length}, 2]"],
        slices=[SliceMap(0, 0, SizeExpr.const(step))],
        merges=[MergeMap(0, "concat", 0)],
    )
    (z,) = b.node("toy.mix", y, outputs=[f"z: f32[{length}, 2]"])
    b.output(z)
    return b.finish()


@given(st.integers(1, 40), st.integers(1, 40))
def test_parts_add_up_to_the_whole_and_only_the_last_is_shorter(length, step):
    graph = rows_graph(length, step)
    node = graph.nodes[0]
    parts = [sizes["part"] for count, sizes in trips(graph, node, node.regions[0]) for _ in range(count)]
    assert sum(parts) == length
    assert set(parts[:-1]) <= {step}
    assert 1 <= parts[-1] <= step


@given(st.integers(1, 40), st.integers(1, 40))
def test_every_room_charges_the_largest_part(length, step):
    graph = rows_graph(length, step)
    schedule = Schedule.program_order(graph)
    row, longest = 2 * 4, min(step, length)
    scratch = (5 + 1) * row * longest
    assert loop_workspaces(graph) == {0: scratch}

    profile = memory_profile(graph, schedule)
    assert profile.workspace_at == (scratch, 0)
    assert profile.peak_with_workspace_bytes == max(2 * length * row + scratch, 3 * length * row)
    problem = compile_problem(graph, toy_registry())
    evaluated = PlannedSequence.evaluate(problem, range(problem.node_count), "")
    assert evaluated.peak_with_workspace_bytes == profile.peak_with_workspace_bytes
    assert lower_bound_bytes(graph) == order_lower_bound_bytes(graph) == profile.peak_with_workspace_bytes
    assert [op.workspace for op in order_problem(graph).ops] == [scratch, 0]
    buffers = schedule_buffers(graph, schedule, workspace={}).problem.buffers
    assert [b.nbytes for b in buffers if b.kind == "workspace"] == [scratch]


def test_a_loop_inside_a_loop_is_read_under_the_sizes_of_the_outer_trip():
    inner, half = SizeExpr.dim("inner"), SizeExpr.dim("half")
    innermost = GraphBuilder("innermost", toy_registry())
    a = innermost.input("a", (inner, 2))
    (h,) = innermost.node("toy.mix", a, outputs=["h: f32[3, {inner}, 2]"])
    (o,) = innermost.node("toy.mix", h, outputs=["o: f32[{inner}, 2]"])
    innermost.output(o)
    middle = GraphBuilder("middle", toy_registry())
    a = middle.input("a", (half, 2))
    (o,) = middle.loop(
        innermost.finish(),
        2,
        [a],
        outputs=["o: f32[{half}, 2]"],
        slices=[SliceMap(0, 0, SizeExpr.const(3))],
        merges=[MergeMap(0, "concat", 0)],
    )
    middle.output(o)
    b = GraphBuilder("outer", toy_registry())
    x = b.input("x", (9, 2))
    (y,) = b.loop(
        middle.finish(),
        2,
        [x],
        outputs=["y: f32[9, 2]"],
        slices=[SliceMap(0, 0, SizeExpr.const(5))],
        merges=[MergeMap(0, "concat", 0)],
    )
    b.output(y)
    graph = b.finish()
    outer = graph.nodes[0]
    middles = [sizes["half"] for _, sizes in trips(graph, outer, outer.regions[0])]
    assert middles == [5, 4]
    body = outer.regions[0].body
    inners = [
        [sizes["inner"] for _, sizes in trips(body, body.nodes[0], body.nodes[0].regions[0], {"half": half})]
        for half in middles
    ]
    assert inners == [[3, 2], [3, 1]]
    # The part handed back by the middle loop, and what the innermost body holds at its peak.
    assert loop_workspaces(graph) == {0: 5 * 8 + (3 + 1) * 3 * 8}


def test_a_dim_of_the_graph_around_needs_a_value():
    graph = loop_graph()
    with pytest.raises(SymbolicError):
        loop_workspaces(graph)
    assert set(loop_workspaces(graph, {"T": 4})) == {0}
