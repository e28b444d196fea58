from __future__ import annotations

import threading

import pytest

from chain_play import chain_step
from neaptide.outcome import LimitGuard, Limits
from neaptide.planner.objective import PlanningProblem
from neaptide.planner.recompute.chain.nominal import NominalBudgets
from neaptide.planner.recompute.chain.search import chain_of
from neaptide.planner.strategies import program_order
from neaptide_corpus.training_steps import transformer_step
from planner_problems import compiled


def nominal_of(step, budget, most=16, interrupt=None):
    problem = PlanningProblem(step, budget)
    return NominalBudgets(problem, chain_of(problem, most), LimitGuard(Limits(), interrupt), "test")


@pytest.mark.parametrize("share", [1.0, 1.2, 1.5])
@pytest.mark.parametrize("units", [5, 7, 10, 14])
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


def test_the_search_ends_at_the_largest_budget_that_fits():
    step = compiled(transformer_step(layers=6))
    peak = program_order.baseline(step).peak_bytes
    budget = step.resident_bytes + (peak - step.resident_bytes) // 2
    nominal = nominal_of(step, budget)
    fitting = [p for p in nominal.fitting() if p.peak_with_workspace_bytes <= budget]
    assert fitting
    assert fitting[-1].seconds == min(p.seconds for p in fitting)
    asked = nominal.plan(1.0)
    assert asked is not None
    assert fitting[-1].seconds <= asked.seconds or asked.peak_with_workspace_bytes > budget


def test_nothing_is_carried_out_once_time_is_up():
    stop = threading.Event()
    nominal = nominal_of(chain_step(8), 500, interrupt=stop)
    stop.set()
    assert nominal.plan(1.0) is None
    assert list(nominal.fitting()) == []
