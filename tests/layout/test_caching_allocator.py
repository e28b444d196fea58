"""Rules of PyTorch's allocator: by hand, by PyTorch's own tests, by a plain model, and by the recorded run of a program."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from layout.caching_play import PlainAllocator
from layout.layout_play import from_rows, random_problem
from layout.recorded_steps import record_step
from neaptide.cost.cards.allocator_events import record
from neaptide.cost.measured import MeasuredCost
from neaptide.errors import LayoutProblemError
from neaptide.ir.schedule import Schedule
from neaptide.layout.bounds import live_bytes
from neaptide.layout.caching_allocator import (
    MIB,
    AllocatorBytes,
    BlockEvent,
    caching_allocator_reserved,
    problem_events,
    simulate_caching_allocator,
)
from neaptide.layout.from_schedule import RESULTS, schedule_buffers
from neaptide.layout.problem import Buffer, LayoutProblem
from neaptide.lower.torch_code import lower
from neaptide.ops import registry
from neaptide.planner.pricing import Pricing
from neaptide.runtime.calls.executor import Executable
from neaptide.zoo.spec import factory
from neaptide_corpus.layouts import nested
from support.together import together
from support.torch_programs import SEED, shuffled

KIB = 1 << 10


def after(*events):
    """The counters at the end of pairs (block, bytes or 0)."""
    return list(simulate_caching_allocator(BlockEvent(*event) for event in events))[-1]


@together(
    ("nbytes", "allocated", "reserved"),
    [
        (1, 512, 2 * MIB),
        (512, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (10 * MIB - 511, 10 * MIB, 10 * MIB),
        (10 * MIB + 1, 10 * MIB + 512, 12 * MIB),
        (11 * MIB, 12 * MIB, 12 * MIB),  # the rest is not above 1 MiB, so it stays with the block
        (11 * MIB - 512, 11 * MIB - 512, 12 * MIB),
        (3 << 40, 3 << 40, 3 << 40),
    ],
)
def test_rounding_and_segment_of_one_request(nbytes, allocated, reserved):
    assert after((0, nbytes)) == (reserved, allocated, nbytes)
    assert after((0, nbytes), (0, 0)) == (reserved, 0, 0)


def test_the_smallest_free_block_that_fits_is_taken():
    made = [(number, kib * KIB) for number, kib in enumerate((100, 1, 64, 1, 80, 1))]
    # 64 KiB go into the second hole, which they fill, 80 into the third; of the first nothing was cut off.
    again = [(0, 0), (2, 0), (4, 0), (6, 64 * KIB), (7, 80 * KIB), (8, 100 * KIB)]
    rest = [(number, (2048 - 247) * KIB // 2) for number in (9, 10)]
    assert after(*made, *again, *rest)[:2] == (2 * MIB, 2 * MIB)


def test_neighbours_merge_within_a_segment_only_and_pools_share_nothing():
    halves = [(number, MIB) for number in range(4)]
    freed = [(number, 0) for number in range(4)]
    # 700 KiB leave 1,348 KiB of a segment, room for one more; across the border nothing merges.
    assert after(*halves, *freed, *((n, 700 * KIB) for n in range(3)))[:2] == (4 * MIB, 2100 * KIB)
    assert after((0, MIB), (0, 0), (0, MIB + 512)).reserved == 22 * MIB


@together(
    ("nbytes", "reserved"),
    [
        (512, 2 * MIB),
        (MIB, 4 * MIB),
        (MIB + 512, 20 * MIB),
        (10 * MIB - 512, 40 * MIB),
        (10 * MIB + 512, 36 * MIB),
    ],
)
def test_a_chain_of_copies_reserves_what_pytorch_demands(nbytes, reserved):
    """PyTorch's own test on CUDA: `b = a.clone()`, then five times `b = b.clone() + 1`, in an empty pool.

    The numbers are those of `test_graph_memory_stats_and_use_result_after_destroy_graph` in test/test_cuda.py.
    """
    turns = [((t + 1, nbytes), (t + 2, nbytes), (t + 1, 0), (t, 0)) for t in range(0, 10, 2)]
    assert after((0, nbytes), *(event for turn in turns for event in turn))[:2] == (reserved, nbytes)


def random_stream(seed, length=120):
    """(block, bytes or 0): sizes around every limit of the rules."""
    rng = random.Random(seed)
    sizes = [1, 512, 4000, 200 * KIB, MIB, MIB + 1, 3 * MIB, 7 * MIB, 10 * MIB, 11 * MIB, 19 * MIB, 25 * MIB]
    live = []
    for number in range(length):
        if live and rng.random() < 0.5:
            yield live.pop(rng.randrange(len(live))), 0
        else:
            live.append(number)
            yield number, max(1, rng.choice(sizes) + rng.choice((0, 0, 1, -1, 512, -512)))


@given(st.integers(0, 10**9))
def test_every_counter_equals_that_of_a_plain_model(seed):
    plain = PlainAllocator()
    events = [BlockEvent(*event) for event in random_stream(seed)]
    for event, now in zip(events, simulate_caching_allocator(events), strict=True):
        if event.nbytes:
            plain.allocate(*event)
        else:
            plain.free(event.block)
        assert now == plain.bytes()


def test_blocks_that_are_not_there_or_there_already():
    for events, words in (
        ([(1, 1), (1, 1)], "block 1 is allocated twice"),
        ([(1, 1), (2, 0)], "block 2 is freed"),
    ):
        with pytest.raises(LayoutProblemError, match=words):
            after(*events)


def test_what_ends_at_a_step_is_freed_before_anything_starts_there():
    buffers = Buffer("b", 2, 3, 7), Buffer("a", 0, 2, 5), Buffer("c", 1, 3, 9), Buffer("d", 2, 5, 1)
    events = [(1, 5), (2, 9), (1, 0), (0, 7), (3, 1), (0, 0), (2, 0), (3, 0)]
    assert list(problem_events(LayoutProblem(buffers))) == events
    assert caching_allocator_reserved(LayoutProblem(())) == 0


@given(st.integers(0, 10**9))
def test_peaks_of_a_problem_are_ordered_and_the_requested_one_is_live_bytes(seed):
    problem = random_problem(seed, 40, largest=1 << 24, alignments=(1,), fixed=False, gaps=False)
    run = list(simulate_caching_allocator(problem_events(problem)))
    reserved, allocated, requested = (max(column) for column in zip(*run, strict=True))
    assert live_bytes(problem) == requested <= allocated <= reserved == caching_allocator_reserved(problem)
    assert run[-1] == AllocatorBytes(run[-1].reserved)


def test_a_step_that_repeats_reserves_nothing_more_where_the_first_left_its_segments_whole():
    events = list(problem_events(from_rows(nested(100, 3))))
    assert after(*events, *events) == after(*events)


def test_a_longer_batch_cannot_use_the_segments_of_a_shorter_one():
    """The reason for reserved bytes far above allocated ones: sizes that grow a little each time."""
    lengths = [(((30 + 2 * length) * MIB), length) for length in range(8)]
    assert (
        after(*(e for size, n in lengths for e in ((n, size), (n, 0)))).reserved
        == sum(range(30, 46, 2)) * MIB
    )


SCALE = 1024
"""Tiny models fit one small segment; with every request as much larger, both pools and all kinds of segments occur."""


@pytest.fixture(
    scope="module",
    params=["mlp", *(pytest.param(name, marks=pytest.mark.slow) for name in ("gpt2", "resnet50"))],
)
def step(request):
    if request.param == "gpt2":
        pytest.importorskip("transformers")
    recorder, graph = record_step(factory(request.param))
    cost = MeasuredCost(registry())
    cost.prepare(graph)
    return request.param, recorder, graph, Pricing(cost, registry()).prices(graph)


def recorded_run(recorder, graph, schedule):
    """The requests of the lowered program, in order."""
    executable = Executable(lower(graph, schedule, registry()), name="recorded")
    executable.run(recorder.fresh_inputs())
    torch.manual_seed(SEED)
    boxed = recorder.fresh_inputs()
    trace = record(lambda: executable.run(boxed))
    live = set()
    events = []
    for event in trace.events:
        if event.signed_bytes > 0 or event.address in live:  # ends of what began before are left out
            (live.add if event.signed_bytes > 0 else live.remove)(event.address)
            events.append(BlockEvent(event.address, max(event.signed_bytes, 0)))
    return events


def peaks(events, scale=1):
    """Reserved, allocated and requested, with every request so many times as large."""
    run = simulate_caching_allocator(BlockEvent(event.block, scale * event.nbytes) for event in events)
    return [max(column) for column in zip(*run, strict=True)]


@together("in_program_order", [True, False])
def test_planned_peaks_are_those_of_the_recorded_run(step, in_program_order):
    name, recorder, graph, found = step
    order = range(len(graph.nodes)) if in_program_order else shuffled(graph, random.Random(1))
    schedule = Schedule.from_nodes(graph, order)
    buffers = schedule_buffers(
        graph,
        schedule,
        inside=(RESULTS,),
        workspace=found.workspace,
        storage_bytes=found.storage_bytes,
    )
    planned = list(problem_events(buffers.problem))
    real = recorded_run(recorder, graph, schedule)
    assert peaks(planned)[1:] == peaks(real)[1:]
    if name == "resnet50":
        return  # its convolutions take their scratch in several blocks, of which the plan knows the sum
    reserved, _, requested = peaks(planned, SCALE)
    assert requested < reserved == peaks(real, SCALE)[0]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("seed", range(4))
def test_counters_are_those_of_the_allocator_on_the_device(seed):
    problem = random_problem(seed, 60, largest=1 << 25, alignments=(1,), fixed=False, gaps=False)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    start = torch.cuda.memory_stats()
    live = {}
    for event in problem_events(problem):
        if event.nbytes:
            live[event.block] = torch.empty(event.nbytes, dtype=torch.uint8, device="cuda")
        else:
            del live[event.block]
    stats = torch.cuda.memory_stats()
    keys = ("reserved_bytes.all", "allocated_bytes.all", "requested_bytes.all")
    for key, peak in zip(keys, peaks(problem_events(problem)), strict=True):
        assert stats[f"{key}.peak"] - start[f"{key}.current"] == peak
