"""How good the plans of the own strategies are: budgets that are met, seconds, bounds."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from neaptide.outcome import Limits
from neaptide.planner.objective import PlanningProblem
from neaptide.planner.recompute.bounds.certificate import recompute_bound
from neaptide.planner.recompute.units import repetition_pairs
from neaptide.planner.strategies import (
    block_dp,
    greedy_recompute,
    lagrangian,
    program_order,
)
from neaptide.schedule.recompute_form import from_json
from neaptide_corpus.recompute_forms import recompute_form
from neaptide_corpus.training_steps import conv_step, pooled_step, transformer_step
from neaptide_peers.strategies import sqrt_n
from planner.chain_play import chain_step
from planner.planner_problems import check_sequence, compiled, least_seconds, random_chain
from support.together import together

STEPS = {
    "transformer": transformer_step(layers=4),
    "dropout": transformer_step(layers=2, dropout=True, clip=True),
    "conv": conv_step(blocks=4, batch=16),
    "pooled": pooled_step(),
}
DEEP = {"transformer": transformer_step(layers=8), "conv": conv_step(blocks=8, batch=32)}


def problem_of(step, share, start=None):
    """A budget that is a share of what program order has beyond the persistent bytes."""
    peak = program_order.baseline(step).peak_with_workspace_bytes
    return PlanningProblem(step, step.persistent_bytes + int(share * (peak - step.persistent_bytes)), start)


# -- greedy_recompute and block_dp


@together("share", [0.8, 0.6, 0.45], quick=(1,))
@together(
    "made",
    [*DEEP.values(), transformer_step(layers=6, dropout=True, clip=True)],
    ids=[*DEEP, "dropout"],
    quick=("conv",),
)
def test_marginal_decisions_and_blocks_reach_a_budget_at_a_moderate_price(made, share):
    problem = problem_of(compiled(made), share)
    step = problem.step
    found = greedy_recompute.solve(problem, Limits()).require()
    outcome = block_dp.solve(problem, Limits())
    for plan in (found, outcome.require()):
        check_sequence(made.graph, plan, None, made.registry)
    assert found.peak_with_workspace_bytes <= problem.budget_bytes
    # One extra forward, what checkpointing every block costs, is about a third.
    assert found.seconds < 1.33 * step.baseline_seconds
    assert outcome.termination.detail.startswith("distinct blocks: ")
    if sqrt_n.solve(problem, Limits()).require().peak_with_workspace_bytes <= problem.budget_bytes:
        assert outcome.require().peak_with_workspace_bytes <= problem.budget_bytes
        assert outcome.require().seconds < 1.25 * step.baseline_seconds


@together(
    "made, op",
    [
        (transformer_step(layers=4, dropout=True), "toy.dropout"),
        (conv_step(blocks=4), "toy.batch_norm"),
    ],
)
def test_dropout_and_batch_norm_may_be_replayed(made, op):
    """The one draws under the state that it had the first time, the other leaves its running statistics alone."""
    found = greedy_recompute.solve(problem_of(compiled(made), 0.4), Limits()).require()
    check_sequence(made.graph, found, None, made.registry)
    ops = [made.graph.nodes[n].op for n in found.sequence]
    assert ops.count(op) > [n.op for n in made.graph.nodes].count(op)


def test_the_budget_is_held_on_the_peak_with_workspace_and_more_work_is_never_worse():
    made = STEPS["transformer"]
    scratch = {n.id: 2_000_000 for n in made.graph.nodes if n.op == "toy.attention_backward"}
    problem = problem_of(compiled(made, scratch), 0.75)
    found = greedy_recompute.solve(problem, Limits()).require()
    check_sequence(made.graph, found, scratch, made.registry)
    assert found.peak_bytes < found.peak_with_workspace_bytes <= problem.budget_bytes
    problem = problem_of(compiled(STEPS["conv"]), 0.4)
    outcomes = [greedy_recompute.solve(problem, Limits(work=work)) for work in (0, 5, 50, 5000)]
    peaks = [outcome.require().peak_bytes for outcome in outcomes]
    assert peaks == sorted(peaks, reverse=True)


def test_blocks_are_made_again_twice_where_the_budget_is_tight():
    found = block_dp.solve(PlanningProblem(chain_step(40), 700), Limits()).require()
    assert found.peak_bytes <= 700
    assert max(found.sequence.count(n) for n in range(40)) > 2


# -- lagrangian


def skips(nodes):
    return problem_of(from_json(json.dumps(recompute_form("skips", nodes, 0))), 0.5)


@pytest.mark.parametrize(
    "family", ["transformer", *(pytest.param(f, marks=pytest.mark.slow) for f in ("residual", "skips"))]
)
def test_prices_meet_budgets_at_no_more_than_the_price_of_marginal_decisions(family):
    problem = problem_of(from_json(json.dumps(recompute_form(family, 150, 1))), 0.7)
    outcome = lagrangian.solve(problem, Limits(work=20_000))
    found = outcome.require()
    assert found.peak_with_workspace_bytes <= problem.budget_bytes
    assert found.seconds <= greedy_recompute.solve(problem, Limits()).require().seconds
    assert outcome.termination.bound <= found.seconds


@together(
    "made",
    [transformer_step(layers=2, dropout=True), conv_step(blocks=2, batch=32)],
    ids=["gpt", "conv"],
    quick=("conv",),
)
def test_plans_of_prices_are_legal_and_keep_the_bound_of_their_order(made):
    step = compiled(made)
    problem = problem_of(step, 0.7)
    outcome = lagrangian.solve(problem, Limits())
    found = outcome.require()
    check_sequence(made.graph, found, None, made.registry)
    assert found.peak_with_workspace_bytes <= problem.budget_bytes
    assert recompute_bound(step, problem.budget_bytes).seconds <= found.seconds
    assert step.baseline_seconds < outcome.termination.bound <= found.seconds


def test_the_bound_is_none_too_high_and_plans_of_chains_are_mostly_the_fastest():
    met = cases = 0
    for seed in range(6):
        problem = problem_of(random_chain(seed, 4), 0.8)
        best = least_seconds(problem.step, problem.budget_bytes)
        if best is None or best == problem.step.baseline_seconds:
            continue
        outcome = lagrangian.solve(problem, Limits())
        found = outcome.require()
        cases += 1
        if found.peak_with_workspace_bytes <= problem.budget_bytes:
            assert outcome.termination.bound <= best + 1e-9
            assert found.seconds >= best - 1e-9
            met += found.seconds <= best + 1e-9
    assert cases >= 4
    assert met >= 0.8 * cases


@pytest.mark.slow
def test_prices_draw_on_what_others_have_found_and_may_end_at_any_work():
    problem = skips(120)
    good = lagrangian.solve(problem, Limits()).require()
    start = greedy_recompute.solve(problem, Limits()).require()
    assert good.seconds < start.seconds
    known = frozenset(repetition_pairs(good.sequence, problem.step.node_count))
    found = lagrangian.solve(replace(problem, start=start.sequence, known=known), Limits()).require()
    assert found.seconds <= good.seconds + 1e-9
    later = replace(problem, start=start.sequence, known=frozenset({(0, problem.step.node_count)}))
    for work in (0, 40, 700):
        outcome = lagrangian.solve(later, Limits(work=work))
        assert outcome.work <= work
        assert outcome.require().rank(problem.budget_bytes) <= start.rank(problem.budget_bytes)


def test_a_plan_is_a_start_and_one_that_is_fast_enough_is_not_searched_further():
    step = compiled(conv_step(blocks=2, batch=32))
    planned = lagrangian.solve(problem_of(step, 0.8), Limits()).require()
    tighter = PlanningProblem(step, step.lower_bound_bytes - 1, start=planned.sequence)
    again = lagrangian.solve(tighter, Limits(work=1000)).require()
    assert again.peak_with_workspace_bytes <= planned.peak_with_workspace_bytes
    problem = skips(60)
    usual = lagrangian.solve(problem, Limits(work=2000))
    short = lagrangian.solve(replace(problem, enough_seconds=1e9), Limits())
    assert short.work < usual.work
    assert short.require().peak_with_workspace_bytes <= problem.budget_bytes
