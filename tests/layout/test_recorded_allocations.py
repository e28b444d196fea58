"""What the simulated allocator makes of a plan, against what it makes of the recorded run of the lowered program.

The CPU has no caching allocator. Recorded are the real requests of the real program, with everything that kernels
allocate inside; the simulator then serves both streams.
"""

from __future__ import annotations

import random

import pytest
import torch

from layout_play import random_problem
from neaptide.cost.allocator_events import record
from neaptide.cost.measured import MeasuredCost
from neaptide.ir.schedule import Schedule
from neaptide.layout.caching_allocator import BlockEvent, problem_events, simulate_caching_allocator
from neaptide.layout.from_schedule import schedule_buffers
from neaptide.lower.torch_code import lower
from neaptide.ops import registry
from neaptide.planner.pricing import Pricing
from neaptide.runtime.calls.executor import Executable
from neaptide.zoo.spec import factory
from recorded_steps import record_step
from together import together
from torch_programs import SEED, shuffled

SCALE = 1024
"""Tiny models fit one small segment; with every request as much larger, both pools and all kinds of segments occur."""


@pytest.fixture(scope="module", params=["mlp", pytest.param("gpt2", marks=pytest.mark.slow), "resnet50"])
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
        results_outside=False,
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
