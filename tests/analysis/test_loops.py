"""Trips of loops, and that every room reads them alike: the last part may be shorter."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neaptide.analysis.bounds import lower_bound_bytes, order_lower_bound_bytes
from neaptide.analysis.legality.schedule import check_schedule
from neaptide.analysis.liveness import with_frees
from neaptide.analysis.loops import first_trip_writes, trips
from neaptide.analysis.profile_bytes import loop_workspaces, memory_profile
from neaptide.cost.model import loop_seconds
from neaptide.errors import SymbolicError, VerifyError
from neaptide.ir.builder import GraphBuilder
from neaptide.ir.nodes import MergeMap, SliceMap
from neaptide.ir.schedule import Schedule
from neaptide.ir.text.parser import parse_graph
from neaptide.ir.text.writer import print_graph
from neaptide.ir.values import Kind
from neaptide.layout.from_schedule import schedule_buffers
from neaptide.planner.objective import PlannedSequence
from neaptide.schedule.order.from_graph import order_problem
from neaptide.schedule.problem import compile_problem
from neaptide.symbolic.size_expr import SizeExpr
from neaptide_corpus.training_steps import toy_registry
from support.hand_graphs import loop_graph

JOIN = (MergeMap(0, "concat", 0),)


def mix(b, *operands, to):
    return b.node("toy.mix", *operands, outputs=[to])[0]


def in_parts(b, body, count, x, step, *made, halo=(0, 0), merges=JOIN):
    """A loop of some trips over parts of `x`."""
    slices = [SliceMap(0, 0, SizeExpr.const(step), *halo)]
    return b.loop(body.finish(), count, [x], outputs=list(made), slices=slices, merges=list(merges))


def rows_graph(length: int, step: int, scratch: int = 5):
    """A loop over rows whose body makes `scratch` times its rows on the way."""
    body = GraphBuilder("body", toy_registry())
    wide = mix(body, body.input("rows", (SizeExpr.dim("part"), 2)), to=f"wide: f32[{scratch}, {{part}}, 2]")
    body.output(mix(body, wide, to="out: f32[{part}, 2]"))
    b = GraphBuilder("rows", toy_registry())
    (y,) = in_parts(b, body, -(-length // step), b.input("x", (length, 2)), step, f"y: f32[{length}, 2]")
    b.output(mix(b, y, to=f"z: f32[{length}, 2]"))
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
    assert profile.bytes_at == (2 * length * row + scratch, 3 * length * row)
    assert profile.workspace_at == (0, 0)
    problem = compile_problem(graph, toy_registry())
    evaluated = PlannedSequence.evaluate(problem, range(problem.node_count), "")
    assert evaluated.peak_bytes == evaluated.peak_with_workspace_bytes == profile.peak_bytes
    assert lower_bound_bytes(graph) == order_lower_bound_bytes(graph) == profile.peak_with_workspace_bytes
    assert [op.workspace for op in order_problem(graph).ops] == [scratch, 0]
    buffers = schedule_buffers(graph, schedule, workspace={}).problem.buffers
    assert [b.nbytes for b in buffers if b.kind == "workspace"] == [scratch]


def test_a_loop_inside_a_loop_is_read_under_the_sizes_of_the_outer_trip():
    innermost = GraphBuilder("innermost", toy_registry())
    h = mix(innermost, innermost.input("a", (SizeExpr.dim("inner"), 2)), to="h: f32[3, {inner}, 2]")
    innermost.output(mix(innermost, h, to="o: f32[{inner}, 2]"))
    middle = GraphBuilder("middle", toy_registry())
    a = middle.input("a", (SizeExpr.dim("half"), 2))
    middle.output(*in_parts(middle, innermost, 2, a, 3, "o: f32[{half}, 2]"))
    b = GraphBuilder("outer", toy_registry())
    b.output(*in_parts(b, middle, 2, b.input("x", (9, 2)), 5, "y: f32[9, 2]"))
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


def summing_graph():
    """A body that makes a wide part of a sum early, and a wide value after it."""
    body = GraphBuilder("body", toy_registry())
    rows = body.input("rows", (2, 2))
    grad, wide = mix(body, rows, to="grad: f32[100]"), mix(body, rows, to="wide: f32[90]")
    body.output(grad, mix(body, wide, to="out: f32[2, 2]"))
    b = GraphBuilder("summing", toy_registry())
    merges = (MergeMap(1, "sum"), *JOIN)
    b.output(*in_parts(b, body, 3, b.input("x", (6, 2)), 2, "y: f32[6, 2]", "g: f32[100]", merges=merges))
    return b.finish()


def test_a_part_dies_when_it_is_merged_and_a_sum_is_there_once():
    graph = summing_graph()
    # At the highest step of a trip either the part of the sum is there, or what is made after it: never both.
    assert loop_workspaces(graph) == {0: 400}
    profile = memory_profile(graph, Schedule.program_order(graph))
    assert profile.peak_with_workspace_bytes == 48 + 48 + 400 + 400


def test_every_room_reads_the_order_of_a_body_alike():
    graph = summing_graph()
    body = graph.nodes[0].regions[0].body
    assert [node.op for node in body.nodes] == [
        "toy.mix",
        "neaptide.add",
        "toy.mix",
        "toy.mix",
        "neaptide.put",
    ]
    worse = Schedule.from_nodes(body, [0, 2, 1, 3, 4])
    schedule = Schedule(Schedule.program_order(graph).steps, {0: worse})
    scratch = 400 + 360
    assert loop_workspaces(graph, bodies=schedule.bodies) == {0: scratch}
    profile = memory_profile(graph, schedule)
    assert profile.bytes_at_by_kind[Kind.TEMPORARY][0] >= scratch
    assert profile.workspace_at == (0,)
    problem = compile_problem(graph, toy_registry(), bodies=schedule.bodies)
    assert problem.workspace == problem.body_bytes == (scratch,)
    buffers = schedule_buffers(graph, schedule, workspace={}).problem.buffers
    assert [b.nbytes for b in buffers if b.kind == "workspace"] == [scratch]
    assert with_frees(graph, schedule).bodies == schedule.bodies
    # The bounds hold for every order of the body.
    assert lower_bound_bytes(graph) == order_lower_bound_bytes(graph) == 48 + 48 + 400 + 400


def test_a_repetition_in_a_body_is_paid_in_every_trip():
    graph = summing_graph()
    body = graph.nodes[0].regions[0].body
    again = Schedule.from_nodes(body, [0, 1, 2, 2, 3, 4])
    seconds = loop_seconds(graph, graph.nodes[0], {}, lambda *_: 1.0, {0: again}, call_s=0.0)
    assert seconds == 3 * 6
    assert loop_seconds(graph, graph.nodes[0], {}, lambda *_: 1.0, call_s=0.0) == 3 * 5


@given(st.integers(1, 30), st.integers(1, 30), st.integers(0, 3), st.integers(0, 3), st.integers(1, 3))
def test_parts_with_a_halo_and_a_factor(length, step, before, after, factor):
    """The extent of a part is `factor * part + halo`; the input is longer than its parts by the halo."""
    body = GraphBuilder("body", toy_registry())
    rows = body.input("rows", (SizeExpr.dim("part") * factor + (before + after),))
    body.output(mix(body, rows, to=f"out: f32[{{{factor}*part}}]"))
    b = GraphBuilder("halo", toy_registry())
    x, made = b.input("x", (length * factor + before + after,)), f"y: f32[{length * factor}]"
    halo = (before, after)
    b.output(*in_parts(b, body, -(-length // step), x, step * factor, made, halo=halo))
    graph = b.finish()
    node = graph.nodes[0]
    parts = [sizes["part"] for count, sizes in trips(graph, node, node.regions[0]) for _ in range(count)]
    assert sum(parts) == length
    assert set(parts[:-1]) <= {step}
    assert parse_graph(print_graph(graph)) == graph


def test_a_sum_is_overwritten_by_the_first_trip_only_where_nothing_else_looks_at_it():
    loop = summing_graph().nodes[0].regions[0]
    assert first_trip_writes(loop) == frozenset(loop.destinations()[:1])
    into = loop.destinations()[0]
    body = loop.body
    second = replace(body.nodes[1], id=len(body.nodes))
    assert first_trip_writes(replace(loop, body=replace(body, nodes=(*body.nodes, second)))) == frozenset()
    looking = replace(body.nodes[0], inputs=(body.inputs[0], into))
    assert (
        first_trip_writes(replace(loop, body=replace(body, nodes=(looking, *body.nodes[1:])))) == frozenset()
    )


def test_an_order_of_a_body_is_checked():
    graph = summing_graph()
    body = graph.nodes[0].regions[0].body
    steps = Schedule.program_order(graph).steps
    check_schedule(graph, Schedule(steps, {0: Schedule.from_nodes(body, [0, 2, 1, 3, 4])}), toy_registry())
    with pytest.raises(VerifyError, match="must run before it"):
        check_schedule(
            graph, Schedule(steps, {0: Schedule.from_nodes(body, [1, 0, 2, 3, 4])}), toy_registry()
        )
    with pytest.raises(VerifyError, match="never runs"):
        check_schedule(graph, Schedule(steps, {0: Schedule.from_nodes(body, [0, 1])}), toy_registry())
    with pytest.raises(VerifyError, match="must not be repeated"):  # a part would be added twice
        check_schedule(
            graph, Schedule(steps, {0: Schedule.from_nodes(body, [0, 1, 1, 2, 3, 4])}), toy_registry()
        )
    with pytest.raises(VerifyError, match="is no loop"):
        check_schedule(graph, Schedule(steps, {1: Schedule.from_nodes(body, range(5))}), toy_registry())


def test_a_trip_is_a_call_and_one_more_for_each_part_that_it_is_handed():
    graph = summing_graph()
    # Three trips: the body, a part of the input, and a part of the result that is joined.
    assert loop_seconds(graph, graph.nodes[0], {}, lambda *_: 0.0, call_s=1.0) == 3 * (1 + 1 + 1)
