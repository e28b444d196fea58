"""The user's own schedule is taken where it is better, and made better still."""

from __future__ import annotations

import pytest

from neaptide.outcome import Limits, TerminationReason
from neaptide.planner.objective import PlannedSequence, PlanningProblem
from neaptide.planner.own_schedule import no_worse_than
from neaptide.planner.strategies import program_order
from neaptide_corpus.training_steps import transformer_step
from neaptide_peers.strategies import per_block
from planner_problems import compiled, judge, units_of

MADE = transformer_step(layers=4)
STEP = compiled(MADE)
LIMITS = Limits(work=500)


def own_schedule() -> PlannedSequence:
    """Blocks checkpointed by hand, as they would be found in the user's code."""
    found = per_block.solve(PlanningProblem(STEP, STEP.lower_bound_bytes), LIMITS).require()
    return PlannedSequence.evaluate(STEP, found.sequence, "as_written")


def test_a_search_that_missed_the_budget_gives_way():
    own = own_schedule()
    budget = own.peak_with_workspace_bytes
    missed = program_order.solve(PlanningProblem(STEP, budget), LIMITS)
    assert missed.require().peak_with_workspace_bytes > budget
    outcome = no_worse_than(own, missed, STEP, budget, LIMITS)
    found = outcome.require()
    judge(MADE.graph, found, None, MADE.registry)
    assert found.rank(budget) <= own.rank(budget)
    assert outcome.termination.reason is TerminationReason.FEASIBLE
    assert outcome.termination.best == found.seconds
    assert sum(unit.seconds for unit in units_of(STEP, found)) == pytest.approx(
        found.seconds - STEP.baseline_seconds
    )


def test_above_the_budget_the_lower_one_is_taken_and_the_bound_stays():
    own = own_schedule()
    budget = STEP.lower_bound_bytes - 1
    missed = program_order.solve(PlanningProblem(STEP, budget), LIMITS)
    outcome = no_worse_than(own, missed, STEP, budget, LIMITS)
    assert outcome.require().peak_with_workspace_bytes <= own.peak_with_workspace_bytes
    assert outcome.termination.reason is missed.termination.reason
    assert outcome.termination.bound == missed.termination.bound
    assert outcome.termination.best == outcome.require().peak_with_workspace_bytes


def test_a_better_answer_of_the_search_is_left_as_it_is():
    budget = program_order.baseline(STEP).peak_with_workspace_bytes
    found = program_order.solve(PlanningProblem(STEP, budget), LIMITS)
    assert no_worse_than(own_schedule(), found, STEP, budget, LIMITS) is found
