from __future__ import annotations

import threading

from chain_play import chain_step
from neaptide.outcome import LimitGuard, Limits
from neaptide.planner.objective import PlanningProblem
from neaptide.planner.recompute.chain.plans import NominalBudgets, chain_of
from together import together


def nominal_of(step, budget, most=16, interrupt=None):
    problem = PlanningProblem(step, budget)
    return NominalBudgets(problem, chain_of(problem, most), LimitGuard(Limits(), interrupt), "test")


@together("share", [1.0, 1.2, 1.5])
@together("units", [5, 7, 10, 14])
def test_the_program_promises_no_less_than_a_chain_needs(units, share):
    step = chain_step(16)
    nominal = nominal_of(step, 100 * units)
    found = nominal.plan(share)
    budget = int(share * 100 * units)
    promised = nominal.program.seconds(budget)
    if found is None:
        assert promised == float("inf")
    else:
        assert found.peak_bytes <= budget
        assert found.seconds <= step.baseline_seconds + promised + 1e-9


def test_nothing_is_carried_out_once_time_is_up():
    stop = threading.Event()
    nominal = nominal_of(chain_step(8), 500, interrupt=stop)
    stop.set()
    assert nominal.plan(1.0) is None
