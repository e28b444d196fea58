from __future__ import annotations

import random
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neaptide.outcome import Limits, TerminationReason
from neaptide.planner.objective import PlanningProblem
from neaptide.planner.portfolio import STAGES, bounded_ending, plan_sequence
from neaptide.planner.recompute.bounds.certificate import RecomputeBound
from neaptide.planner.recompute.curve import search as engine
from neaptide.planner.strategies import program_order, strategy
from neaptide.schedule.problem import compile_problem
from neaptide_corpus.random_graphs import random_graph
from neaptide_corpus.training_steps import conv_step, toy_registry, transformer_step
from planner_problems import compiled, judge, least_seconds
from strategies import graphs
from together import together


@together("seed", range(12))
def test_tiny_instances_come_close_to_brute_force(seed):
    draw = random.Random(seed)
    size = 5 + seed % 3
    graph = random_graph(
        seed,
        size,
        views=False,
        in_place=False,
        multi_output=False,
        shape_only=False,
        resident=False,
        rng=False,
    )
    workspace = {n: draw.choice([0, 0, 4, 20]) for n in range(size)}
    seconds = [draw.randint(1, 9) for _ in range(size)]
    step = compile_problem(graph, toy_registry(), workspace=workspace, seconds=seconds)
    peak = program_order.baseline(step).peak_with_workspace_bytes
    for share in (0.0, 0.5, 0.9):
        budget = int(step.lower_bound_bytes + share * (peak - step.lower_bound_bytes))
        best = least_seconds(step, budget)
        outcome = plan_sequence(step, budget, Limits())
        found = outcome.require()
        judge(graph, found, workspace)
        if best is not None:
            assert found.peak_with_workspace_bytes <= budget
            assert found.seconds <= 1.05 * best


@pytest.mark.parametrize(
    "made", [transformer_step(layers=4), conv_step(blocks=8, batch=32)], ids=["transformer", "conv"]
)
def test_tighter_budgets_cost_more_and_are_met(made):
    step = compiled(made)
    peak = program_order.baseline(step).peak_with_workspace_bytes
    seconds = []
    for share in (1.0, 0.8, 0.6, 0.5):
        budget = step.resident_bytes + int(share * (peak - step.resident_bytes))
        outcome = plan_sequence(step, budget, Limits(work=2500))
        found = outcome.require()
        judge(made.graph, found, None, made.registry)
        assert found.peak_with_workspace_bytes <= budget
        assert outcome.termination.reason in {TerminationReason.OPTIMAL, TerminationReason.FEASIBLE}
        seconds.append(found.seconds)
    assert seconds == sorted(seconds)
    assert seconds[0] == pytest.approx(step.baseline_seconds)


def test_a_budget_below_the_bound_is_infeasible_and_names_it():
    made = transformer_step(layers=2)
    step = compiled(made)
    outcome = plan_sequence(step, step.lower_bound_bytes - 1, Limits(work=2000))
    assert outcome.termination.reason is TerminationReason.INFEASIBLE
    assert outcome.termination.bound == step.lower_bound_bytes
    assert "no schedule" in outcome.termination.detail
    found = outcome.require()
    assert outcome.termination.best == found.peak_with_workspace_bytes
    assert found.peak_with_workspace_bytes < program_order.baseline(step).peak_with_workspace_bytes


def test_a_budget_that_is_not_found_is_not_called_infeasible():
    made = transformer_step(layers=2, dropout=True)
    step = compiled(made)
    outcome = plan_sequence(step, step.lower_bound_bytes, Limits(work=2000))
    if outcome.require().peak_with_workspace_bytes > step.lower_bound_bytes:
        assert outcome.termination.reason is TerminationReason.NO_SOLUTION_FOUND
        assert "lowest peak found" in outcome.termination.detail


def test_the_same_work_and_seed_give_the_same_plan():
    made = conv_step(blocks=4)
    step = compiled(made)
    budget = step.resident_bytes + (program_order.baseline(step).peak_bytes - step.resident_bytes) // 2
    for work in (30, 400):
        one = plan_sequence(step, budget, Limits(work=work, seed=5))
        two = plan_sequence(step, budget, Limits(work=work, seed=5))
        assert (one.value, one.work, one.termination) == (two.value, two.work, two.termination)


def test_an_interrupt_returns_the_best_so_far():
    made = conv_step(blocks=4)
    step = compiled(made)
    stop = threading.Event()
    stop.set()
    outcome = plan_sequence(step, step.lower_bound_bytes, Limits(), interrupt=stop)
    assert outcome.termination.reason is TerminationReason.INTERRUPTED
    assert outcome.require().sequence == tuple(range(step.node_count))


@given(st.data(), st.floats(0.2, 1.0))
def test_any_graph_is_legal_and_no_higher_than_budget_and_baseline(data, share):
    graph = data.draw(graphs(min_nodes=1, max_nodes=12))
    step = compile_problem(graph, toy_registry())
    peak = program_order.baseline(step).peak_with_workspace_bytes
    budget = int(share * peak)
    outcome = plan_sequence(step, budget, Limits(work=300))
    judge(graph, outcome.require())
    assert outcome.require().peak_with_workspace_bytes <= peak
    assert outcome.require().peak_with_workspace_bytes >= step.lower_bound_bytes


@pytest.mark.parametrize("seconds", [3.5, float("inf")])
def test_a_bound_that_contradicts_a_plan_is_not_given(seconds):
    step = compiled(conv_step(blocks=2, batch=1))
    plan = program_order.baseline(step)
    wrong = RecomputeBound(plan.seconds + seconds)
    ended = bounded_ending(step, plan, wrong, None, TerminationReason.FEASIBLE)
    assert ended.reason is TerminationReason.FEASIBLE
    assert ended.bound is None
    assert "contradicts" in ended.detail


@together("stage", STAGES)
def test_a_stage_left_out_is_not_asked_and_the_plan_is_sound(stage, monkeypatch):
    made = conv_step(blocks=3)
    step = compiled(made)
    before = program_order.baseline(step).peak_with_workspace_bytes
    budget = (step.lower_bound_bytes + before) // 2
    asked = set()

    def noted(name):
        asked.add(name)
        return strategy(name)

    monkeypatch.setattr(engine, "strategy", noted)
    found = plan_sequence(step, budget, Limits(work=1000), without=(stage,)).require()
    judge(made.graph, found, None, made.registry)
    assert found.peak_with_workspace_bytes <= max(before, budget)
    assert stage not in asked


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_fixed_order_is_kept_whatever_the_budget(share):
    made = conv_step(blocks=3)
    step = compiled(made)
    order = tuple(range(step.node_count))
    before, low = program_order.baseline(step).peak_with_workspace_bytes, step.lower_bound_bytes
    budget = int(low + share * (before - low))
    outcome = plan_sequence(step, budget, Limits(work=2000), order=order)
    found = outcome.require()
    judge(made.graph, found, None, made.registry)
    assert tuple(dict.fromkeys(found.sequence)) == order
    greedy = strategy("greedy_recompute")(PlanningProblem(step, budget, start=order), Limits(work=2000))
    assert found.rank(budget) <= greedy.require().rank(budget)


def half(made):
    """A problem, and a budget that takes recomputation."""
    step = compiled(made)
    return step, (step.resident_bytes + program_order.baseline(step).peak_with_workspace_bytes) // 2


def test_a_plan_within_the_budget_is_there_before_the_search_for_an_order(monkeypatch):
    """On a busy machine that search may take all of the time."""
    step, budget = half(conv_step(blocks=6, batch=32))
    stop, asked = threading.Event(), []
    searched = engine.strategy

    def cut_in_the_order(name):
        def solve(problem, limits, interrupt):
            asked.append(name)
            if name == "best_order":
                stop.set()
            return searched(name)(problem, limits, interrupt)

        return solve

    monkeypatch.setattr(engine, "strategy", cut_in_the_order)
    found = plan_sequence(step, budget, Limits(), interrupt=stop).require()
    assert asked[-1] == "best_order"
    assert found.peak_with_workspace_bytes <= budget


def test_a_search_ends_where_it_took_longer_than_it_can_save():
    step, budget = half(transformer_step(layers=3))
    once = plan_sequence(step, budget, Limits(time_s=1e6, runs=0))
    assert once.require().peak_with_workspace_bytes <= budget
    assert once.termination.detail == "a faster plan would save less than the search for it takes"
    assert once.termination.reason is TerminationReason.FEASIBLE
    limited = plan_sequence(step, budget, Limits(work=3000, runs=0))
    assert limited.termination.detail != once.termination.detail, "without a clock nothing is said of time"
    assert limited.require().seconds <= once.require().seconds
    below = plan_sequence(step, step.lower_bound_bytes, Limits(time_s=1e6, work=500, runs=0))
    assert "lowest peak" in below.termination.detail or below.require().peak_bytes <= step.lower_bound_bytes
