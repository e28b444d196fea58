from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neaptide.analysis.legality.schedule import check_schedule
from neaptide.cost.devices import DISK_BYTES_PER_S
from neaptide.cost.presets import get_device
from neaptide.errors import UsageError, VerifyError
from neaptide.ir.schedule import Offload, Schedule
from neaptide.schedule.problem import compile_problem
from neaptide.schedule.timeline import copy_links, simulate_timeline
from neaptide_corpus.random_graphs import random_graph
from neaptide_corpus.training_steps import toy_registry
from schedule.timeline_play import BACK, OUT, Tasks, run_events
from support.drawn import examples, graphs


@st.composite
def transferring(draw, graph):
    """A legal schedule of a graph with some offloads."""
    schedule = Schedule.program_order(graph)
    made = [s for node in graph.nodes for s in graph.created_storages(node)]
    offloads = []
    for storage in draw(st.lists(st.sampled_from(made), unique=True, max_size=5)) if made else []:
        creator = next(n.id for n in graph.nodes if storage in graph.created_storages(n))
        uses = [
            n.id
            for n in graph.nodes
            if storage in {graph.values[v].storage for v in (*n.inputs, *n.outputs)} and n.id >= creator
        ]
        gaps = [(a, b) for a, b in pairwise(uses) if b > a + 1]
        if not gaps:
            continue
        first, then = draw(st.sampled_from(gaps))
        gone, load = sorted(draw(st.tuples(st.integers(first, then - 1), st.integers(first + 1, then))))
        offload = Offload(storage, 0, draw(st.integers(first, gone)), gone, max(load, gone + 1), then)
        try:
            check_schedule(graph, schedule.with_offloads([*offloads, offload]), toy_registry())
        except VerifyError:
            continue
        offloads.append(offload)
    return schedule.with_offloads(offloads)


@settings(max_examples=examples(300))
@given(st.data())
def test_seconds_equal_a_play_of_events(data):
    graph = data.draw(graphs(min_nodes=3))
    seconds = data.draw(
        st.lists(st.integers(0, 40), min_size=len(graph.nodes), max_size=len(graph.nodes)).map(
            lambda whole: [n / 4 for n in whole]
        )
    )
    problem = compile_problem(graph, toy_registry(), seconds=seconds, random_state_seconds=0.5)
    schedule = data.draw(transferring(graph))
    repeats = Schedule.from_nodes(graph, [*range(len(graph.nodes)), *range(len(graph.nodes))])
    schedule = replace(schedule, steps=(*schedule.steps, *repeats.steps[len(graph.nodes) :]))
    found = simulate_timeline(problem, schedule, OUT, BACK)
    tasks = Tasks()
    tasks.add(
        schedule,
        lambda step: (problem.repeat_seconds if step.occurrence else problem.seconds)[step.target],
        problem.storage_bytes.__getitem__,
    )
    assert found.seconds == run_events(tasks.all)
    assert [(copy.start_s, copy.end_s) for copy in found.copies] == [
        (task.begun, task.ended) for task in tasks.all if task.machine != "compute"
    ]
    assert (
        found.seconds == problem.sequence_seconds([s.target for s in schedule.node_steps()]) + found.exposed_s
    )


def test_a_copy_is_hidden_behind_operations_or_exposed_where_they_are_too_short():
    graph = random_graph(3, 6, views=False, in_place=False, shape_only=False, rng=False)
    uses = {
        s: [n.id for n in graph.nodes if s in {graph.values[v].storage for v in (*n.inputs, *n.outputs)}]
        for n in graph.nodes
        for s in graph.created_storages(n)
    }
    storage, (first, then) = next((s, (a, b)) for s, u in uses.items() for a, b in pairwise(u) if b > a + 2)
    schedule = Schedule.program_order(graph).with_offloads(
        [Offload(storage, 0, first, first + 1, first + 2, then)]
    )
    check_schedule(graph, schedule, toy_registry())
    nbytes = graph.storages[storage].nbytes.constant_value()
    slow = compile_problem(graph, toy_registry(), seconds=[100.0 * nbytes] * 6)
    hidden = simulate_timeline(slow, schedule, OUT, BACK)
    assert (hidden.seconds, hidden.exposed_s) == (600.0 * nbytes, 0.0)
    quick = compile_problem(graph, toy_registry(), seconds=[0.0] * 6)
    exposed = simulate_timeline(quick, schedule, OUT, BACK)
    assert exposed.seconds == exposed.exposed_s == OUT.seconds(nbytes) + BACK.seconds(nbytes)


def test_links_are_those_of_the_device():
    device = get_device("a100-40g")
    out, back = copy_links(device)
    assert ((out.source, out.target), (back.source, back.target)) == (("device", "host"), ("host", "device"))
    here = replace(device, kind="cpu").with_disk(1e6)
    assert [link.bandwidth_bytes_per_s for link in copy_links(here)] == [1e6, 1e6]
    with pytest.raises(UsageError, match="nothing can be stored on the host"):
        copy_links(replace(device, links=()))


def test_what_leaves_a_cpu_goes_to_a_file_at_the_rate_of_its_mover():
    out, back = copy_links(replace(get_device("a100-40g"), kind="cpu"))
    assert ((out.source, out.target), (back.source, back.target)) == (("device", "disk"), ("disk", "device"))
    assert out.bandwidth_bytes_per_s == back.bandwidth_bytes_per_s == DISK_BYTES_PER_S
