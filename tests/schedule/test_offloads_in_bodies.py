"""Stays in the bodies of loops: bytes on both sides, and seconds of all trips, against plain plays of each trip."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from neaptide.analysis.legality.schedule import check_schedule
from neaptide.analysis.loops import trips
from neaptide.analysis.profile_bytes import memory_profile
from neaptide.errors import UsageError
from neaptide.ir.loops.orders import body_orders, body_schedules
from neaptide.ir.schedule import Schedule, StepKind
from neaptide.planner.pricing import Pricing
from neaptide.schedule.copy_streams import Busy, LoopCopies, Trip
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.offloaded import with_offloads
from neaptide.schedule.timeline import Links, OffloadClock, simulate_timeline
from schedule.body_play import REGISTRY, QuarterCost, looped, offloaded
from schedule.timeline_play import BACK, OUT, Tasks, run_events
from support.drawn import examples

LINKS = Links(OUT, BACK)


@st.composite
def cases(draw):
    graph = draw(looped())
    schedule = draw(offloaded(graph))
    assume(schedule.has_transfers)
    return graph, schedule


def most_on_host(graph, schedule, sizes):
    """By step that runs a node, the most bytes on the host until the next one begins: each trip is walked through."""
    there, leaving, most = {}, set(), []
    for step in schedule.steps:
        if step.runs_node:
            node, inside = graph.nodes[step.target], 0
            for loop in node.regions:
                for _, within in trips(graph, node, loop, sizes):
                    inside = max([inside, *most_on_host(loop.body, schedule.bodies[node.id], within)])
            most.append(sum(there.values()) + inside)
        elif step.kind == "store":
            there[step.target] = graph.storages[step.target].nbytes.evaluate(sizes)
            leaving.add(step.target)
            most[-1] = max(most[-1], sum(there.values()))
        elif step.kind == "wait" and step.target in leaving:
            leaving.remove(step.target)
        elif step.kind == "wait":
            del there[step.target]
    return most


@settings(max_examples=examples(80), deadline=None)
@given(cases())
def test_bytes_on_the_host_are_those_of_the_fullest_trip(case):
    graph, schedule = case
    check_schedule(graph, schedule, REGISTRY)
    profile = memory_profile(graph, schedule)
    assert list(profile.host_bytes_at) == most_on_host(graph, schedule, {})
    problem = Pricing(QuarterCost(), REGISTRY, links=LINKS).problem(graph, schedule.bodies)
    sequence = [step.target for step in schedule.node_steps()]
    found = with_offloads(Evaluator(problem, sequence), schedule.offloads())
    assert found.host_bytes.tolist() == list(profile.host_bytes_at)
    assert found.peak_host_bytes == profile.peak_host_bytes
    assert found.peak == profile.peak_with_workspace_bytes
    assert found.peak_without_workspace == profile.peak_bytes

    # Orders are kept as plain data.
    made = body_schedules(graph, body_orders(schedule.bodies))
    assert {loop: body_orders({loop: order}) for loop, order in made.items()} == {
        loop: body_orders({loop: order}) for loop, order in schedule.bodies.items()
    }
    assert memory_profile(graph, Schedule(schedule.steps, made)) == profile


@settings(max_examples=examples(100), deadline=None)
@given(cases())
def test_seconds_are_those_of_all_trips_played_as_events(case):
    graph, schedule = case
    cost = QuarterCost()
    problem = Pricing(cost, REGISTRY, links=LINKS).problem(graph, schedule.bodies)
    tasks = Tasks()
    tasks.add_graph(graph, schedule, cost.plain_seconds, call_s=cost.call_s)
    found = simulate_timeline(problem, schedule, OUT, BACK)
    assert found.seconds == run_events(tasks.all)
    assert found.seconds == problem.baseline_seconds + found.exposed_s
    assert sum(wait.seconds for wait in found.waits) == found.exposed_s

    evaluator = Evaluator(problem)
    offloads = schedule.offloads()
    nbytes = [problem.moved_bytes(offload.storage) for offload in offloads]
    quick = OffloadClock.of(evaluator, OUT, BACK).play([offload.positions for offload in offloads], nbytes)
    assert quick.exposed_s == found.exposed_s


@settings(max_examples=3, deadline=None)
@given(cases())
def test_a_body_that_stores_has_no_seconds_without_links(case):
    graph, schedule = case
    assume(any(body.has_transfers for body in schedule.bodies.values()))
    with pytest.raises(UsageError, match="stores something on the host"):
        Pricing(QuarterCost(), REGISTRY).problem(graph, schedule.bodies)


def test_a_busy_engine_makes_the_first_trip_longer():
    key = (0, 0)
    events = (
        (1.0, StepKind.STORE, key, 2.0),
        (2.0, StepKind.WAIT, key, 0.0),
        (2.0, StepKind.LOAD, key, 1.0),
        (2.0, StepKind.WAIT, key, 0.0),
    )
    trip = Trip(2.0, 0.0, events)
    copies = LoopCopies(((10**9, trip), (1, trip)))
    alone = copies.alone
    assert alone.waited_s == 2.0 * (10**9 + 1)
    assert alone.seconds == 4.0 * (10**9 + 1)
    assert copies.play(Busy(1.0, 3.0)) == alone
    late = copies.play(Busy(out_s=5.0))
    assert (late.seconds - alone.seconds, late.waited_s - alone.waited_s, late.busy) == (4.0, 4.0, Busy())
