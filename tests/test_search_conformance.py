"""What `outcome.Outcome` promises, of every search that has no file of its own for that: limits, interrupts, bounds.

Strategies, orders and layouts by name have `test_*_conformance.py` of their own.
"""

from __future__ import annotations

import copy
import random
import threading

from layout.layout_play import from_rows
from layout.pools.pool_play import random_pools
from neaptide.layout.pools.placing import place_in_spaces
from neaptide.outcome import Limits, TerminationReason
from neaptide.planner.offload.host import HostSpace
from neaptide.planner.offload.lowest_peak import lowest_peak
from neaptide.planner.offload.problem import OffloadProblem
from neaptide.planner.offload.search import choose_offload
from neaptide.planner.recompute.curve.curve import recompute_curve
from neaptide.planner.recompute.curve.least_memory import least_memory
from neaptide.planner.strategies.program_order import baseline
from neaptide_corpus.layouts import staggered
from neaptide_peers.layouts.hill_climb import hill_climb
from planner.offload.offload_play import chain, links
from planner.planner_problems import instance
from support.together import together

STEP = instance("skips", 60)
BETWEEN = (STEP.persistent_bytes + baseline(STEP).peak_with_workspace_bytes) // 2

POOLS = random_pools(30, 15)


def offloads(step, budget, **options):
    return OffloadProblem(step, budget, HostSpace(1 << 40, *links(8.0)), [baseline(step)], **options)


def fastest(limits, interrupt):
    step = chain(5, random.Random(2))
    budget = (step.lower_bound_bytes + baseline(step).peak_with_workspace_bytes) // 2
    return choose_offload(offloads(step, budget), limits, interrupt)


def lowest(limits, interrupt):
    step = chain(5, random.Random(2))
    problem = offloads(step, baseline(step).peak_with_workspace_bytes, longest=1.2 * step.baseline_seconds)
    return lowest_peak(problem, choose_offload, limits, interrupt)


SEARCHES = {
    "recompute_curve": lambda limits, interrupt: recompute_curve(
        STEP, count=4, limits=limits, interrupt=interrupt
    ),
    "curve_of_a_budget": lambda limits, interrupt: recompute_curve(
        STEP, [BETWEEN], limits=limits, interrupt=interrupt
    ),
    "least_memory": lambda limits, interrupt: least_memory(
        STEP, 1.1 * STEP.baseline_seconds, limits, interrupt
    ),
    "place_in_spaces": lambda limits, interrupt: place_in_spaces(POOLS, limits, interrupt),
    "choose_offload": fastest,
    "lowest_peak": lowest,
    "hill_climb": lambda limits, interrupt: hill_climb(
        from_rows(staggered(60, 2)), limits, interrupt=interrupt
    ),
}


@together("name", SEARCHES)
def test_a_limit_of_work_is_kept_and_the_answer_is_the_same_again_and_better_with_more(name):
    best, step = [], copy.deepcopy(STEP)
    for work in (1, 100, 400):
        limits = Limits(work=work, seed=3)
        one = SEARCHES[name](limits, None)
        if work == 100:
            two = SEARCHES[name](limits, None)
            assert (one.value, one.work, one.termination) == (two.value, two.work, two.termination)
        assert one.work <= work
        assert one.termination.limit in {None, "work"}
        assert one.termination.reason in {TerminationReason.FEASIBLE, TerminationReason.OPTIMAL}
        assert name != "recompute_curve" or "budgets proved" in one.termination.detail
        if one.termination.best is not None:
            best.append(one.termination.best)
            assert one.termination.bound is None or one.termination.bound <= best[-1]
    assert best == sorted(best, reverse=True)
    assert step == STEP


@together("name", SEARCHES)
def test_an_interrupted_search_says_so_and_has_an_answer(name):
    stop = threading.Event()
    stop.set()
    outcome = SEARCHES[name](Limits(), stop)
    assert outcome.value is not None
    assert outcome.termination.is_proved or outcome.termination.reason is TerminationReason.INTERRUPTED
