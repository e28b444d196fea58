"""What `runtime.comparing.contestants.Rival` promises, of programs in this process and in one of their own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from neaptide.ask import Ask
from neaptide.budget import Budget
from neaptide.outcome import Limits
from neaptide.runtime.comparing import contestants
from neaptide.runtime.comparing.contestant_process import rivals
from support import catalogue
from support.steps import deep_factory

CLOSE = Ask(Budget("min"), limits=Limits(work=50), numerics="close", workers=1)


def of_programs(memory):
    """What was seen of the program alone, without the pages of its process."""
    return replace(memory, high_water_mark_bytes=None)


@pytest.fixture(scope="module")
def planned():
    """A plan of a rewritten graph."""
    found = catalogue.planned(deep_factory, CLOSE, run_operations=False)
    assert found.variant.graphs[0].rewrites
    return found


@pytest.mark.parametrize("own_processes", [False, True], ids=["here", "elsewhere"])
def test_a_rival_runs_as_many_steps_as_it_is_asked_for_and_tells_its_bytes_and_seconds(
    planned, own_processes
):
    predicted = planned.plan.programs[0].predictions
    with rivals(deep_factory, 0, own_processes=own_processes) as make:
        ours = make("plan", planned.variant)
        others = [] if own_processes else [make("eager", None)]  # a process takes seconds to begin
        assert [one.name for one in (ours, *others)] == ["plan", "eager"][: 1 + len(others)]
        assert all(one.first_steps() >= 1 for one in (ours, *others))
        ours.steps(0)
        ours.steps(2)
        memory = ours.memory()
        assert of_programs(memory) == of_programs(ours.memory()), "a usual step takes the same bytes again"
        assert memory.measured_peak_bytes == predicted.peak_bytes
        assert memory.measured_allocator_peak_bytes >= memory.measured_peak_bytes
        assert not memory.unregistered
        assert min(ours.timed()) > 0
        found = contestants.measure([ours, *others], 2)
    assert of_programs(found["plan"].memory) == of_programs(memory)
    assert len({one.memory.persistent_bytes for one in found.values()}) == 1
    assert all(len(one.times.wall_s) == len(one.times.cpu_s) == 2 for one in found.values())
