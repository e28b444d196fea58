from __future__ import annotations

import json
from dataclasses import replace

import pytest

from neaptide.outcome import Limits
from neaptide.planner.objective import PlanningProblem
from neaptide.planner.recompute.bounds.certificate import recompute_bound
from neaptide.planner.recompute.units import repetition_pairs
from neaptide.planner.strategies import greedy_recompute, lagrangian, program_order
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.recompute_form import from_json
from neaptide_corpus.recompute_forms import recompute_form
from neaptide_corpus.training_steps import conv_step, transformer_step
from planner_problems import compiled, judge, least_seconds, random_chain


def problem_of(step, share):
    peak = program_order.baseline(step).peak_with_workspace_bytes
    return PlanningProblem(step, step.resident_bytes + int(share * (peak - step.resident_bytes)))


@pytest.mark.parametrize(
    "family", ["transformer", *(pytest.param(f, marks=pytest.mark.slow) for f in ("residual", "skips"))]
)
def test_budgets_are_met_at_no_more_than_the_price_of_marginal_decisions(family):
    step = from_json(json.dumps(recompute_form(family, 150, 1)))
    for share in (0.7, 0.5):
        problem = problem_of(step, share)
        outcome = lagrangian.solve(problem, Limits(work=20_000))
        found = outcome.require()
        greedy = greedy_recompute.solve(problem, Limits()).require()
        assert found.peak_with_workspace_bytes <= problem.budget_bytes
        assert found.seconds <= greedy.seconds
        assert outcome.termination.bound <= found.seconds


@pytest.mark.parametrize(
    "made", [transformer_step(layers=2, dropout=True), conv_step(blocks=2, batch=32)], ids=["gpt", "conv"]
)
def test_plans_of_training_steps_are_legal_and_keep_the_bound_of_their_order(made):
    step = compiled(made)
    problem = problem_of(step, 0.7)
    outcome = lagrangian.solve(problem, Limits())
    found = outcome.require()
    judge(made.graph, found, None, made.registry)
    assert found.peak_with_workspace_bytes <= problem.budget_bytes
    assert recompute_bound(step, problem.budget_bytes).seconds <= found.seconds
    assert step.baseline_seconds < outcome.termination.bound <= found.seconds


def test_the_bound_is_none_too_high_and_plans_of_chains_are_mostly_the_fastest():
    met = cases = 0
    for seed in range(12):
        step = random_chain(seed, 4)
        problem = problem_of(step, 0.8)
        best = least_seconds(step, problem.budget_bytes)
        if best is None or best == step.baseline_seconds:
            continue
        outcome = lagrangian.solve(problem, Limits())
        found = outcome.require()
        cases += 1
        if found.peak_with_workspace_bytes <= problem.budget_bytes:
            assert outcome.termination.bound <= best + 1e-9
            assert found.seconds >= best - 1e-9
            met += found.seconds <= best + 1e-9
    assert cases >= 8
    assert met >= 0.8 * cases


@pytest.mark.slow
def test_what_others_have_found_is_drawn_on():
    step = from_json(json.dumps(recompute_form("skips", 120, 0)))
    problem = problem_of(step, 0.5)
    good = lagrangian.solve(problem, Limits()).require()
    start = greedy_recompute.solve(problem, Limits()).require()
    assert good.seconds < start.seconds
    known = frozenset(repetition_pairs(good.sequence, step.node_count))
    found = lagrangian.solve(replace(problem, start=start.sequence, known=known), Limits()).require()
    assert found.seconds <= good.seconds + 1e-9


@pytest.mark.slow
def test_a_search_may_end_between_a_larger_pool_and_its_answer():
    step = from_json(json.dumps(recompute_form("skips", 120, 0)))
    problem = problem_of(step, 0.5)
    start = greedy_recompute.solve(problem, Limits()).require()
    later = replace(problem, start=start.sequence, known=frozenset({(0, step.node_count)}))
    for work in (0, 40, 700):
        outcome = lagrangian.solve(later, Limits(work=work))
        assert outcome.work <= work
        assert outcome.require().rank(problem.budget_bytes) <= start.rank(problem.budget_bytes)


def test_a_plan_is_a_start():
    step = compiled(transformer_step(layers=1))
    planned = lagrangian.solve(problem_of(step, 0.8), Limits()).require().sequence
    tighter = PlanningProblem(step, step.lower_bound_bytes - 1, start=planned)
    again = lagrangian.solve(tighter, Limits()).require()
    assert again.peak_with_workspace_bytes <= Evaluator(step, planned).peak


def test_a_plan_that_is_fast_enough_is_not_searched_further():
    step = from_json(json.dumps(recompute_form("skips", 120, 0)))
    problem = problem_of(step, 0.5)
    usual = lagrangian.solve(problem, Limits(work=2000))
    short = lagrangian.solve(replace(problem, enough_seconds=1e9), Limits())
    assert short.work < usual.work
    assert short.require().peak_with_workspace_bytes <= problem.budget_bytes
