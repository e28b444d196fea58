from __future__ import annotations

from functools import cache

import pytest

from chain_play import chain_step
from neaptide.outcome import Limits
from neaptide.planner.objective import PlanningProblem
from neaptide_peers.strategies import revolve, sqrt_n


@cache
def least(blocks, places):
    """The recurrence of the binomial optimum."""
    if blocks == 1:
        return 0
    if places == 1:
        return blocks * (blocks - 1) // 2
    return min(j + least(blocks - j, places - 1) + least(j, places) for j in range(1, blocks))


@pytest.mark.parametrize("places", range(1, 8))
def test_the_closed_form_is_the_recurrence(places):
    for blocks in range(1, 40):
        assert revolve.least_runs(blocks, places) == least(blocks, places)


def test_the_first_place_is_optimal():
    for blocks in range(2, 30):
        for places in range(2, 6):
            j = revolve.first_place(blocks, places)
            runs = j + revolve.least_runs(blocks - j, places - 1) + revolve.least_runs(j, places)
            assert runs == revolve.least_runs(blocks, places)


def test_few_places_reach_what_segments_cannot():
    step = chain_step(60)
    segments = sqrt_n.solve(PlanningProblem(step, 101), Limits()).require()
    found = revolve.solve(PlanningProblem(step, 101), Limits()).require()
    assert found.peak_bytes < 0.75 * segments.peak_bytes
    # Two forwards of log depth would be 60 * log2(60); one place alone takes 60 * 59 / 2.
    within = revolve.solve(PlanningProblem(step, 1000), Limits()).require()
    assert within.peak_bytes <= 1000
    assert within.seconds < step.baseline_seconds + 4 * 60


def test_more_room_is_never_slower():
    step = chain_step(40)
    seconds = []
    for units in (8, 10, 14, 20, 30):
        found = revolve.solve(PlanningProblem(step, 100 * units), Limits()).require()
        assert found.peak_bytes <= 100 * units
        seconds.append(found.seconds)
    assert seconds == sorted(seconds, reverse=True)
