from __future__ import annotations

import math
import random

import pytest

from neaptide.outcome import Limits
from neaptide.planner.offload.gap_table import GapTable
from neaptide.planner.offload.host import HostSpace
from neaptide.planner.offload.lowest_peak import lowest_peak
from neaptide.planner.offload.placement import fill_gaps
from neaptide.planner.offload.problem import OffloadProblem
from neaptide.planner.offload.search import choose_offload
from neaptide.planner.recompute.curve.least_memory import least_memory
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.timeline import OffloadClock
from planner.offload.offload_play import chain, least_seconds, links


def lowest(step, host, longest, interrupt=None):
    alone = least_memory(step, longest, Limits(work=500)).require()
    peak = Evaluator(step).peak
    problem = OffloadProblem(step, peak, host, [alone], longest=longest)
    return alone, lowest_peak(problem, choose_offload, Limits(), interrupt)


def away_wherever_idle(step, host):
    """The peak of program order with every gap filled."""
    evaluator = Evaluator(step)
    clock = OffloadClock.of(evaluator, host.out, host.back)
    return fill_gaps(evaluator.bytes, GapTable(evaluator, host).all(), 0, clock).peak_bytes


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3))])
@pytest.mark.parametrize("longer", [1.01, 1.2, math.inf])
def test_the_peak_is_no_higher_than_without_offloads_and_the_time_is_kept(seed, longer):
    draw = random.Random(seed)
    step = chain(draw.randint(3, 7), draw)
    host = HostSpace(1 << 40, *links(draw.choice([2.0, 8.0, 1e15])))
    longest = longer * step.baseline_seconds
    alone, outcome = lowest(step, host, longest)
    found = outcome.require().planned
    assert step.lower_bound_bytes <= found.peak_with_workspace_bytes <= alone.peak_with_workspace_bytes
    assert found.seconds <= longest
    assert outcome.termination.best == found.peak_with_workspace_bytes
    assert outcome.termination.bound == step.lower_bound_bytes
    if host.out.bandwidth_bytes_per_s == 1e15:
        # Copies take no time, so whatever idles may be away.
        hidden = away_wherever_idle(step, host)
        assert found.peak_with_workspace_bytes <= max(hidden * 1.01, hidden + 1)


def test_it_is_near_the_best_of_all_choices():
    """Over a fixed set of small problems: within the time, and as low as all choices allow in most of them."""
    as_low = compared = 0
    for seed in range(4):
        draw = random.Random(seed)
        step = chain(3, draw)
        host = HostSpace(1 << 40, *links(draw.choice([1.0, 2.0, 4.0])))
        longest = 1.15 * step.baseline_seconds
        found = lowest(step, host, longest)[1].require()
        below = found.planned.peak_with_workspace_bytes - 1
        if below < step.lower_bound_bytes:
            as_low, compared = as_low + 1, compared + 1
            continue
        least = least_seconds(step, below, host, repetitions=1)
        compared += 1
        as_low += least is None or least > longest + 1e-9
    assert compared == 4
    assert as_low >= 3


def test_where_nothing_is_fast_enough_the_fastest_known_plan_stays():
    step = chain(4, random.Random(1))
    host = HostSpace(1 << 40, *links(1e15))
    alone, outcome = lowest(step, host, 0.5 * step.baseline_seconds)
    assert outcome.require().offloads == ()
    assert outcome.require().planned == alone
