"""Offloads, within a step and between two: bytes here and there, and seconds, beside what checks them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neaptide.analysis.kinds import storages_between_steps
from neaptide.analysis.legality.schedule import check_schedule
from neaptide.analysis.profile_bytes import memory_profile
from neaptide.cost.devices import Link
from neaptide.errors import VerifyError
from neaptide.ir.builder import GraphBuilder
from neaptide.ir.schedule import BETWEEN, Offload
from neaptide.ir.values import Kind
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.offloaded import with_offloads
from neaptide.schedule.problem import compile_problem
from neaptide.schedule.timeline import OffloadClock, simulate_timeline
from neaptide_corpus.training_steps import toy_registry
from support.drawn import examples, graphs, schedules

REGISTRY = toy_registry()
OUT, BACK = Link("device", "host", 8.0, 0.25), Link("host", "device", 4.0, 0.5)


def as_state(graph):
    """The graph with all that the caller owns as parameters, and with its other outputs as optimizer states."""
    owned, handed_back = set(graph.input_storages()), set(graph.output_storages())
    kinds = dict.fromkeys(handed_back, Kind.OPTIMIZER_STATE) | dict.fromkeys(owned, Kind.PARAMETER)
    return replace(graph, storages=tuple(replace(s, kind=kinds.get(s.id, s.kind)) for s in graph.storages))


@st.composite
def wanted(draw, evaluator, between):
    """An offload of any instance around a pair of its uses, or from the step before on and to the next one."""
    count, problem = len(evaluator.order), evaluator.problem
    storage = draw(st.sampled_from([s for s in range(len(problem.creator)) if problem.moved_bytes(s)]))
    uses = evaluator.uses(storage)
    occurrence = draw(st.integers(0, len(uses) - 1))
    needed = uses[occurrence].needed_by or uses[occurrence].touched_by
    touched = [evaluator.places[execution] for execution in dict.fromkeys(needed)]
    first = draw(st.sampled_from([0, *touched]))
    last = next((place for place in touched if place > first), count)
    if storage in between and draw(st.booleans()):
        halves = [Offload(storage, occurrence, touched[-1], touched[-1], BETWEEN, BETWEEN)]
        if uses[occurrence].is_owned:
            halves.append(Offload(storage, occurrence, BETWEEN, BETWEEN, touched[0], touched[0]))
        return halves
    gone = draw(st.integers(first, max(min(last, count) - 2, first)))
    load = draw(st.integers(gone + 1, max(last, gone + 1)))
    return [Offload(storage, occurrence, first, gone, load, last)]


@settings(max_examples=examples(300))
@given(st.data(), st.integers(0, 9), st.booleans())
def test_bytes_and_seconds_are_those_of_the_judge(data, scratch, is_state):
    graph = data.draw(graphs(min_nodes=2))
    graph = as_state(graph) if is_state else graph
    workspace = {node.id: scratch * (node.id % 3) for node in graph.nodes}
    seconds = [node.id % 5 / 4 for node in graph.nodes]
    problem = compile_problem(graph, REGISTRY, workspace=workspace, seconds=seconds, random_state_seconds=0.5)
    order = data.draw(schedules(graph))
    evaluator = Evaluator(problem, [step.target for step in order.node_steps()])
    if not any(map(problem.moved_bytes, range(len(problem.creator)))):
        return
    between = storages_between_steps(graph) if is_state else frozenset()
    offloads, schedule = (), order
    for _ in range(data.draw(st.integers(1, 8))):
        more = (*offloads, *data.draw(wanted(evaluator, between)))
        more = tuple(
            sorted(more, key=lambda offload: (offload.store_after, offload.storage, offload.occurrence))
        )
        try:
            longer = order.with_offloads(more)
            check_schedule(graph, longer, REGISTRY)
        except VerifyError:
            continue
        offloads, schedule = more, longer
    found, profile = with_offloads(evaluator, offloads), memory_profile(graph, schedule, workspace=workspace)
    assert found.bytes.tolist() == [
        a + b for a, b in zip(profile.bytes_at, profile.workspace_at, strict=True)
    ]
    assert found.host_bytes.tolist() == list(profile.host_bytes_at)
    assert (found.peak, found.peak_without_workspace, found.peak_host_bytes) == (
        *(profile.peak_with_workspace_bytes, profile.peak_bytes, profile.peak_host_bytes),
    )
    assert found.peak >= problem.lower_bound_with_state_between
    nbytes = [problem.moved_bytes(offload.storage) for offload in offloads]
    times = OffloadClock.of(evaluator, OUT, BACK).play([offload.positions for offload in offloads], nbytes)
    assert times.exposed_s == pytest.approx(simulate_timeline(problem, schedule, OUT, BACK).exposed_s)


def test_a_storage_is_on_the_device_but_for_its_offloads():
    """0 makes a; 1 writes a; 2 reads a; 3, 4, 5 do without; 6 reads a, and is the output; sizes 10, then 1 each."""
    b = GraphBuilder("chain", REGISTRY)
    (a,) = b.node("toy.mix", b.input("w", (1,)), outputs=["a: f32[10]"])
    (r,) = b.node("toy.relu_", a, outputs=["r: f32[10] @a"])
    (v,) = b.node("toy.mix", r, outputs=["v2: f32[1]"])
    for number in (3, 4, 5):
        (v,) = b.node("toy.mix", v, outputs=[f"v{number}: f32[1]"])
    b.output(*b.node("toy.mix", v, r, outputs=["o: f32[1]"]))
    graph = b.finish()
    storage = graph.values[a].storage
    evaluator = Evaluator(compile_problem(graph, REGISTRY))
    assert evaluator.spans[storage] == ((0, 6),)
    assert evaluator.bytes.tolist() == [44, 44, 48, 52, 52, 52, 52]
    found = with_offloads(evaluator, [Offload(storage, 0, 1, 3, 5, 6)])
    assert found.bytes.tolist() == [44, 44, 48, 52, 12, 52, 52]
    assert found.host_bytes.tolist() == [0, 40, 40, 40, 40, 40, 0]


def test_a_state_that_is_away_except_where_it_is_needed_has_its_bytes_there_alone():
    """Five nodes, of which the third updates a weight of 40 bytes and no other touches it."""
    b = GraphBuilder("update", REGISTRY)
    w, x = b.input("w", (10,), kind=Kind.PARAMETER), b.input("x", (1,), kind=Kind.INPUT)
    (a,) = b.node("toy.mix", x, outputs=["a: f32[1]"])
    (c,) = b.node("toy.mix", a, outputs=["c: f32[10]"])
    b.node("toy.add_", w, c, outputs=["w2: f32[10] @w"])
    for name in ("d", "e"):
        (a,) = b.node("toy.mix", a, outputs=[f"{name}: f32[1]"])
    b.output(a)
    graph = b.finish()
    storage, evaluator = graph.values[w].storage, Evaluator(compile_problem(graph, REGISTRY))
    found = with_offloads(
        evaluator,
        (Offload(storage, 0, BETWEEN, BETWEEN, 2, 2), Offload(storage, 0, 2, 3, BETWEEN, BETWEEN)),
    )
    assert (evaluator.bytes - found.bytes).tolist() == [40, 40, 0, 0, 40]
    assert found.host_bytes.tolist() == [40, 40, 40, 40, 40]
