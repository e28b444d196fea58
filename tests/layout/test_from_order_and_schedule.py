"""Layout problems of schedules and of orders, and orders whose arena is lower."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layout.layout_small import NINE, problem_of
from neaptide.analysis.profile_bytes import memory_profile
from neaptide.errors import LayoutProblemError
from neaptide.ir.schedule import Offload, Schedule
from neaptide.layout.bounds import bytes_live_at, live_bytes
from neaptide.layout.from_order import order_buffers
from neaptide.layout.from_schedule import OUTSIDE, PERSISTENT, RESULTS, schedule_buffers
from neaptide.layout.lower_arena import lower_arena
from neaptide.layout.problem import Buffer, LayoutProblem
from neaptide.layout.validate import check_layout
from neaptide.outcome import Limits, TerminationReason
from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.neutral import from_mapping
from neaptide_corpus.random_graphs import random_graph
from neaptide_corpus.random_orders import layered
from schedule.order.order_problems import random_problem
from support.drawn import examples


@given(st.integers(0, 10**6), st.integers(1, 25))
@settings(max_examples=examples(120), deadline=None)
def test_with_everything_inside_live_bytes_are_the_peak_of_the_reference(seed, n):
    graph = random_graph(seed, n)
    rng = random.Random(seed)
    workspace = {node.id: rng.randint(1, 300) for node in graph.nodes if rng.random() < 0.3}
    schedule = Schedule.program_order(graph)
    placed = schedule_buffers(graph, schedule, workspace=workspace, alignment=1, inside=(PERSISTENT, RESULTS))
    profile = memory_profile(graph, schedule, workspace=workspace)
    assert live_bytes(placed.problem) == profile.peak_with_workspace_bytes
    assert placed.persistent_bytes == placed.handed_back_bytes == 0


@given(st.integers(0, 10**6), st.integers(1, 25))
@settings(max_examples=examples(120), deadline=None)
def test_what_is_outside_makes_up_the_rest(seed, n):
    graph = random_graph(seed, n)
    schedule = Schedule.program_order(graph)
    profile = memory_profile(graph, schedule)
    placed = schedule_buffers(graph, schedule, alignment=1)
    points, total = bytes_live_at(placed.problem)
    inside = dict(zip(points.tolist(), total.tolist(), strict=True))
    handed_back = {storage for storage in graph.output_storages() if storage not in graph.input_storages()}
    now = 0
    for position, expected in enumerate(profile.bytes_at):
        now = inside.get(position, now)
        kept = sum(
            graph.storages[i.storage].nbytes.evaluate()
            for i in placed.liveness.instances
            if i.storage in handed_back and i.start <= position < i.end
        )
        assert now + placed.persistent_bytes + kept == expected


def test_every_instance_has_a_buffer_or_is_outside():
    graph = random_graph(5, 20)
    sequence = Schedule.program_order(graph)
    placed = schedule_buffers(graph, sequence, alignment=32)
    assert len(placed.buffer_of) == len(placed.liveness.instances)
    inside = [b for b in placed.buffer_of if b != OUTSIDE]
    assert sorted(inside) == list(range(len(placed.problem)))
    assert all(b.alignment == 32 for b in placed.problem.buffers)


def test_a_schedule_with_transfers_is_refused():
    graph = random_graph(5, 20)
    schedule = Schedule.program_order(graph).with_offloads([Offload(3, 0, 1, 2, 4, 5)])
    with pytest.raises(LayoutProblemError, match="no layout yet"):
        schedule_buffers(graph, schedule)


@given(st.integers(0, 10**6), st.integers(1, 9), st.booleans())
@settings(deadline=None)
def test_live_bytes_are_the_peak_of_the_order_when_nothing_is_taken_over(seed, count, in_place):
    problem = random_problem(seed, count, in_place=in_place)
    order = tuple(range(problem.op_count))
    assert live_bytes(order_buffers(problem, order)) >= evaluate_order(problem, order).peak_bytes
    if not any(op.in_place for op in problem.ops):
        assert live_bytes(order_buffers(problem, order)) == evaluate_order(problem, order).peak_bytes


@given(st.integers(0, 1000))
@settings(max_examples=examples(60), deadline=None)
def test_what_comes_back_is_legal_and_no_higher(seed):
    problem = from_mapping(layered(24, seed))
    order = tuple(range(problem.op_count))
    found = lower_arena(
        order,
        lambda o: order_buffers(problem, o),
        problem.is_order,
        Limits(work=10, seed=seed),
        tolerated_gap=0.0,
    ).require()
    assert problem.is_order(found.order)
    assert evaluate_order(problem, found.order).peak_bytes <= evaluate_order(problem, order).peak_bytes
    assert found.layout.layout is not None
    check_layout(order_buffers(problem, found.order), found.layout.layout)


def test_another_order_is_found_where_the_first_packs_badly():
    stubborn = problem_of(*NINE)
    # Step 3 one place later: what ended there ends with it, and everything can lie at its place.
    easy = problem_of(*NINE[:-1])

    def buffers(order):
        return easy if order.index(4) < order.index(3) else stubborn

    first = lower_arena(range(6), buffers, lambda _: False, Limits())
    assert first.require().layout.arena_bytes == 9
    assert first.termination.bound == 8
    assert first.termination.reason is TerminationReason.FEASIBLE
    second = lower_arena(range(6), buffers, lambda order: order.index(2) < order.index(3), Limits()).require()
    assert second.order.index(4) < second.order.index(3)
    assert second.order.index(2) < second.order.index(3)
    assert second.layout.arena_bytes == 8
    assert second.tried > 1


def test_a_tight_arena_is_left_alone():
    problem = LayoutProblem((Buffer("a", 0, 2, 4), Buffer("b", 1, 3, 4)))

    def never(_order):
        raise AssertionError

    found = lower_arena((0, 1, 2), lambda _: problem, never, Limits()).require()
    assert found.order == (0, 1, 2)
    assert found.tried == 1
