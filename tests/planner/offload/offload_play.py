"""Small problems of offloads, and the best of all choices."""

from __future__ import annotations

import itertools

import pytest

from neaptide.analysis.legality.schedule import check_schedule
from neaptide.analysis.profile_bytes import memory_profile
from neaptide.cost.devices import Link
from neaptide.ir.schedule import Schedule
from neaptide.outcome import Limits
from neaptide.planner.objective import PlanningProblem
from neaptide.planner.offload.gap_table import GapTable
from neaptide.planner.offload.placement import fill_gaps
from neaptide.planner.strategies import greedy_recompute
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.recompute_form import InstanceNode, from_nodes
from neaptide.schedule.timeline import OffloadClock, simulate_timeline


def links(bytes_per_s, latency_s=0.0):
    return Link("device", "host", bytes_per_s, latency_s), Link("host", "device", bytes_per_s, latency_s)


def chain(layers, draw):
    """A forward of some layers and a backward whose k-th step reads what the layer before it made."""
    nodes = [
        InstanceNode(f"f{k}", draw.randint(2, 9), [k - 1] if k else [], seconds=draw.choice([1.0, 2.0, 4.0]))
        for k in range(layers)
    ]
    for k in reversed(range(layers)):
        reads = [k, *([len(nodes) - 1] if k < layers - 1 else [])]
        nodes.append(InstanceNode(f"b{k}", draw.randint(1, 3), reads, seconds=2.0, phase="bwd"))
    nodes[-1] = InstanceNode(nodes[-1].name, 1, nodes[-1].deps, seconds=2.0, phase="bwd", out=True)
    return from_nodes(nodes)


def recomputed(step, budget):
    return greedy_recompute.solve(PlanningProblem(step, budget), Limits()).require()


def least_seconds(step, budget, host, repetitions):
    """Every way to run some units again, and every set of gaps, placed as well as `fill_gaps` can."""
    count = step.node_count
    places = [(node, before) for node in range(count) for before in range(node + 2, count + 1)]
    least = None
    for number in range(repetitions + 1):
        for chosen in itertools.combinations(places, number):
            at = {}
            for node, before in chosen:
                at.setdefault(before, []).append(node)
            sequence = [
                n for k in range(count + 1) for n in [*sorted(at.get(k, ())), *range(k, min(k + 1, count))]
            ]
            evaluator = Evaluator(step, sequence)
            clock = OffloadClock.of(evaluator, host.out, host.back)
            gaps = GapTable(evaluator, host).all()
            for size in range(3):
                for some in itertools.combinations(gaps, size):
                    placed = fill_gaps(evaluator.bytes, some, budget, clock)
                    seconds = clock.begins_s[-1] + placed.times.exposed_s
                    if placed.peak_bytes <= budget and (least is None or seconds < least):
                        least = seconds
    return least


def checked(graph, registry, step, found, host):
    """The profile of a plan that is legal, and that says of itself what the checkers say."""
    schedule = Schedule.from_nodes(graph, found.planned.sequence).with_offloads(found.offloads)
    check_schedule(graph, schedule, registry)
    profile = memory_profile(graph, schedule)
    assert profile.peak_with_workspace_bytes == found.planned.peak_with_workspace_bytes
    assert profile.peak_bytes == found.planned.peak_bytes
    assert profile.peak_host_bytes == found.host_bytes <= host.nbytes
    played = simulate_timeline(step, schedule, host.out, host.back)
    assert (played.seconds, played.exposed_s) == pytest.approx((found.planned.seconds, found.exposed_s))
    return profile
