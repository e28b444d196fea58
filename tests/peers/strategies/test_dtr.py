"""Strategies that simulate eviction: no worse than their start, the same twice, and between the planners."""

from __future__ import annotations

import pytest

from neaptide.outcome import Limits, TerminationReason
from neaptide.planner.objective import PlanningProblem
from neaptide.planner.recompute.bounds.certificate import recompute_bound
from neaptide.planner.strategies import early_updates, program_order, strategy
from neaptide_corpus.training_steps import conv_step, transformer_step
from neaptide_peers.eviction.policy import HEURISTICS
from planner.chain_play import chain_step
from planner.planner_problems import compiled

STEPS = {
    "transformer": transformer_step(layers=4),
    "dropout": transformer_step(layers=2, dropout=True, clip=True),
    "conv": conv_step(blocks=5, batch=16),
}


@pytest.mark.parametrize("made", STEPS.values(), ids=STEPS)
def test_training_steps_meet_their_budget_and_the_bound(made):
    step = compiled(made)
    early = early_updates.solve(PlanningProblem(step, 0), Limits()).require()
    budget = step.persistent_bytes + int(0.7 * (early.peak_with_workspace_bytes - step.persistent_bytes))
    found = strategy("dtr")(PlanningProblem(step, budget, early.sequence), Limits()).require()
    assert found.peak_with_workspace_bytes <= budget
    bound = recompute_bound(step, budget, sequence=found.sequence)
    assert bound.seconds <= found.seconds * (1 + 1e-9)


def test_neighbourhoods_pay():
    step = chain_step(64)
    problem = PlanningProblem(step, 2200)
    seconds = {name: strategy(name)(problem, Limits()).require().seconds for name in HEURISTICS}
    assert seconds["dtr"] <= min(seconds["dtr_local"], seconds["evict_oldest"])


def test_what_it_cannot_work_on_is_handed_back_with_a_reason():
    step = chain_step(6)
    peak = program_order.baseline(step).peak_bytes
    enough = strategy("dtr")(PlanningProblem(step, peak), Limits())
    assert enough.termination.reason is TerminationReason.OPTIMAL
    assert "within the budget" in enough.termination.detail
    repeated = strategy("dtr")(PlanningProblem(step, 0, (0, 1, 2, 3, 4, 5, 0, *range(6, 12))), Limits())
    assert "recomputations already" in repeated.termination.detail
    too_little = strategy("dtr")(PlanningProblem(step, 1), Limits())
    assert "not met" in too_little.termination.detail or "gave up" in too_little.termination.detail
