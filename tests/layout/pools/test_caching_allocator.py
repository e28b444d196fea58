import pytest
from hypothesis import given
from hypothesis import strategies as st

from layout_play import from_rows, random_problem
from neaptide.errors import LayoutProblemError
from neaptide.layout.bounds import live_bytes
from neaptide.layout.pools.allocation_events import BlockEvent, problem_events
from neaptide.layout.pools.caching_allocator import caching_allocator_reserved, simulate_caching_allocator
from neaptide.layout.pools.device_allocator import AllocatorBytes, AllocatorSettings
from neaptide.layout.problem import Buffer, LayoutProblem
from neaptide_corpus.layouts import nested

MIB = 1 << 20


def test_a_run_has_peaks_counters_and_fragmentation():
    events = [BlockEvent(0, 12 * MIB), BlockEvent(1, 100), BlockEvent(0, 0), BlockEvent(2, 13 * MIB)]
    run = simulate_caching_allocator(events)
    assert run.timeline == (
        AllocatorBytes(12 * MIB, 12 * MIB, 12 * MIB),
        AllocatorBytes(14 * MIB, 12 * MIB + 512, 12 * MIB + 100),
        AllocatorBytes(14 * MIB, 512, 100),
        AllocatorBytes(28 * MIB, 14 * MIB + 512, 13 * MIB + 100),
    )
    assert (run.reserved_peak_bytes, run.allocated_peak_bytes) == (28 * MIB, 14 * MIB + 512)
    assert run.requested_peak_bytes == 13 * MIB + 100
    assert (run.segments, run.segments_made, run.retries, run.failed_at) == (3, 3, 0, None)
    assert run.fragmentation == pytest.approx(28 * MIB / (13 * MIB + 100) - 1)


def test_a_run_ends_where_the_device_has_no_room():
    events = [BlockEvent(0, 12 * MIB), BlockEvent(1, 30 * MIB), BlockEvent(0, 0)]
    run = simulate_caching_allocator(events, AllocatorSettings(capacity_bytes=40 * MIB))
    assert (run.failed_at, len(run.timeline), run.retries, run.segments) == (1, 1, 1, 1)
    problem = LayoutProblem((Buffer("a", 0, 2, 12 * MIB), Buffer("b", 1, 2, 30 * MIB)))
    assert caching_allocator_reserved(problem) == 42 * MIB
    with pytest.raises(LayoutProblemError, match="out of memory"):
        caching_allocator_reserved(problem, AllocatorSettings(capacity_bytes=40 * MIB))


def test_no_events_and_negative_sizes():
    run = simulate_caching_allocator([])
    assert (run.reserved_peak_bytes, run.segments, run.timeline, run.fragmentation) == (0, 0, (), 0.0)
    assert caching_allocator_reserved(LayoutProblem(())) == 0
    with pytest.raises(LayoutProblemError, match="block 3 has -1 bytes"):
        simulate_caching_allocator([BlockEvent(3, -1)])


@given(st.integers(0, 10**9), st.booleans())
def test_peaks_of_a_problem_are_ordered_and_the_requested_one_is_live_bytes(seed, expandable):
    problem = random_problem(seed, 40, largest=1 << 24, alignments=(1,), fixed=False, gaps=False)
    settings = AllocatorSettings(expandable_segments=expandable)
    run = simulate_caching_allocator(problem_events(problem), settings)
    assert run.requested_peak_bytes == live_bytes(problem)
    assert run.requested_peak_bytes <= run.allocated_peak_bytes <= run.reserved_peak_bytes
    assert caching_allocator_reserved(problem, settings) == run.reserved_peak_bytes
    assert run.timeline[-1].requested == 0


def test_a_step_that_repeats_reserves_nothing_more_where_the_first_left_its_segments_whole():
    problem = from_rows(nested(100, 3))
    once = simulate_caching_allocator(problem_events(problem))
    twice = simulate_caching_allocator([*problem_events(problem), *problem_events(problem)])
    assert twice.segments_made == once.segments_made
    assert twice.timeline[-1] == once.timeline[-1]


def test_a_longer_batch_cannot_use_the_segments_of_a_shorter_one():
    """The reason for reserved bytes far above allocated ones: sizes that grow a little each time."""
    events = []
    for length in range(8):
        events += [BlockEvent(length, (30 + 2 * length) * MIB), BlockEvent(length, 0)]
    run = simulate_caching_allocator(events)
    assert (run.requested_peak_bytes, run.reserved_peak_bytes) == (44 * MIB, sum(range(30, 46, 2)) * MIB)
    grown = simulate_caching_allocator(events, AllocatorSettings(expandable_segments=True))
    assert grown.reserved_peak_bytes == 60 * MIB  # three pages of 20 MiB
