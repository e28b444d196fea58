import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from example_counts import examples
from neaptide.analysis.profile_bytes import memory_profile
from neaptide.errors import LayoutProblemError
from neaptide.ir.schedule import HostStay, Schedule
from neaptide.layout.bounds import bytes_live_at, live_bytes
from neaptide.layout.from_schedule import OUTSIDE, schedule_buffers
from neaptide_corpus.random_graphs import random_graph


@given(st.integers(0, 10**6), st.integers(1, 25))
@settings(max_examples=examples(120), deadline=None)
def test_with_everything_inside_live_bytes_are_the_peak_of_the_reference(seed, n):
    graph = random_graph(seed, n)
    rng = random.Random(seed)
    workspace = {node.id: rng.randint(1, 300) for node in graph.nodes if rng.random() < 0.3}
    schedule = Schedule.program_order(graph)
    placed = schedule_buffers(
        graph, schedule, workspace=workspace, alignment=1, results_outside=False, resident_outside=False
    )
    profile = memory_profile(graph, schedule, workspace=workspace)
    assert live_bytes(placed.problem) == profile.peak_with_workspace_bytes
    assert placed.resident_bytes == placed.handed_back_bytes == 0


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
        assert now + placed.resident_bytes + kept == expected


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
    schedule = Schedule.program_order(graph).with_stays([HostStay(3, 0, 1, 2, 4, 5)])
    with pytest.raises(LayoutProblemError, match="no layout yet"):
        schedule_buffers(graph, schedule)
