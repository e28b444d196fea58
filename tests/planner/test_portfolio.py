"""The least time within bytes, and the lowest peak: as a budget of its own, and as the floor of a budget out of reach."""

from __future__ import annotations

import math
import random
import threading

import pytest
from hypothesis import given

from neaptide.budget import Budget
from neaptide.errors import InvalidBudget
from neaptide.outcome import Limits, TerminationReason
from neaptide.planner.graphs.own_schedule import no_worse_than
from neaptide.planner.graphs.plan_graph import GraphAsk, plan_graph
from neaptide.planner.objective import PlannedSequence, PlanningProblem
from neaptide.planner.portfolio import STAGES, bounded_ending, plan_sequence
from neaptide.planner.recompute.bounds.certificate import RecomputeBound
from neaptide.planner.recompute.curve import search as engine
from neaptide.planner.recompute.curve.least_memory import least_memory
from neaptide.planner.strategies import program_order, strategy
from neaptide.schedule.problem import compile_problem
from neaptide_corpus.random_graphs import random_graph
from neaptide_corpus.training_steps import conv_step, toy_registry, transformer_step
from neaptide_peers.strategies import per_block
from planner.given_cost import given_pricing
from planner.planner_problems import check_sequence, compiled, least_seconds, random_chain, units_of
from support.drawn import graphs
from support.together import together


def peak_of(step):
    return program_order.baseline(step).peak_with_workspace_bytes


@together("seed", range(12), quick=(0, 4, 5, 7))
def test_tiny_instances_come_close_to_brute_force(seed):
    draw, size = random.Random(seed), 5 + seed % 3
    plain = ("views", "in_place", "multi_output", "shape_only", "persistent", "rng")
    graph = random_graph(seed, size, **dict.fromkeys(plain, False))
    workspace = {n: draw.choice([0, 0, 4, 20]) for n in range(size)}
    seconds = [draw.randint(1, 9) for _ in range(size)]
    step = compile_problem(graph, toy_registry(), workspace=workspace, seconds=seconds)
    for share in (0.0, 0.5, 0.9):
        budget = int(step.lower_bound_bytes + share * (peak_of(step) - step.lower_bound_bytes))
        found = plan_sequence(step, budget, Limits()).require()
        check_sequence(graph, found, workspace)
        if (best := least_seconds(step, budget)) is not None:
            assert found.peak_with_workspace_bytes <= budget
            assert found.seconds <= 1.05 * best


@together(
    "made",
    [transformer_step(layers=4), conv_step(blocks=8, batch=32)],
    ids=["transformer", "conv"],
    quick=("conv",),
)
def test_tighter_budgets_cost_more_and_are_met(made):
    step = compiled(made)
    seconds = []
    for share in (1.0, 0.7, 0.5):
        budget = step.persistent_bytes + int(share * (peak_of(step) - step.persistent_bytes))
        outcome = plan_sequence(step, budget, Limits(work=1000))
        found = outcome.require()
        check_sequence(made.graph, found, None, made.registry)
        assert found.peak_with_workspace_bytes <= budget
        assert outcome.termination.reason in {TerminationReason.OPTIMAL, TerminationReason.FEASIBLE}
        seconds.append(found.seconds)
    assert seconds == sorted(seconds)
    assert seconds[0] == pytest.approx(step.baseline_seconds)


def test_a_budget_below_the_bound_is_infeasible_and_one_that_is_not_found_is_not_called_so():
    step = compiled(transformer_step(layers=2))
    outcome = plan_sequence(step, step.lower_bound_bytes - 1, Limits(work=2000))
    found, ended = outcome.require(), outcome.termination
    assert (ended.reason, ended.bound) == (TerminationReason.INFEASIBLE, step.lower_bound_bytes)
    assert "no schedule" in ended.detail
    assert ended.best == found.peak_with_workspace_bytes < peak_of(step)
    step = compiled(transformer_step(layers=2, dropout=True))
    outcome = plan_sequence(step, step.lower_bound_bytes, Limits(work=2000))
    if outcome.require().peak_with_workspace_bytes > step.lower_bound_bytes:
        assert outcome.termination.reason is TerminationReason.NO_SOLUTION_FOUND
        assert "lowest peak found" in outcome.termination.detail


def half(made):
    """A problem, and a budget that takes recomputation."""
    step = compiled(made)
    return step, (step.persistent_bytes + peak_of(step)) // 2


@together("seconds", [3.5, math.inf])
def test_a_bound_that_contradicts_a_plan_is_not_given(seconds):
    step = compiled(conv_step(blocks=2, batch=1))
    plan = program_order.baseline(step)
    wrong = RecomputeBound(plan.seconds + seconds)
    ended = bounded_ending(step, plan, wrong, None, TerminationReason.FEASIBLE)
    assert (ended.reason, ended.bound) == (TerminationReason.FEASIBLE, None)
    assert "contradicts" in ended.detail


@together("stage", STAGES, quick=(0, len(STAGES) - 1))
def test_a_stage_left_out_is_not_asked_and_the_plan_is_sound(stage, monkeypatch):
    made, asked = conv_step(blocks=3), set()
    step = compiled(made)
    budget = (step.lower_bound_bytes + peak_of(step)) // 2
    monkeypatch.setattr(engine, "strategy", lambda name: asked.add(name) or strategy(name))
    found = plan_sequence(step, budget, Limits(work=1000), without=(stage,)).require()
    check_sequence(made.graph, found, None, made.registry)
    assert found.peak_with_workspace_bytes <= max(peak_of(step), budget)
    assert stage not in asked


@together("share", [0.0, 0.5, 1.0], quick=(1,))
def test_a_fixed_order_is_kept_whatever_the_budget(share):
    made = conv_step(blocks=3)
    step = compiled(made)
    order, low = tuple(range(step.node_count)), step.lower_bound_bytes
    budget = int(low + share * (peak_of(step) - low))
    found = plan_sequence(step, budget, Limits(work=2000), order=order).require()
    check_sequence(made.graph, found, None, made.registry)
    assert tuple(dict.fromkeys(found.sequence)) == order
    greedy = strategy("greedy_recompute")(PlanningProblem(step, budget, start=order), Limits(work=2000))
    assert found.rank(budget) <= greedy.require().rank(budget)


def test_a_plan_within_the_budget_is_there_before_the_search_for_an_order(monkeypatch):
    """On a busy machine that search may take all of the time."""
    step, budget = half(conv_step(blocks=6, batch=32))
    stop, asked = threading.Event(), []
    searched = engine.strategy

    def cut_in_the_order(name):
        asked.append(name)
        if name == "best_order":
            stop.set()
        return searched(name)

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


# -- the lowest peak


def floors(step, shares=(0.05, 0.3, 0.5, 0.7)):
    """Peaks that budgets out of reach end with, the lowest budget first; those in reach left out."""
    budgets = [int(share * peak_of(step)) for share in shares]
    found = [plan_sequence(step, nbytes, Limits()).require().peak_with_workspace_bytes for nbytes in budgets]
    return [peak for peak, budget in zip(found, budgets, strict=True) if peak > budget]


def test_asking_for_less_never_ends_with_a_higher_floor():
    chain, conv = floors(random_chain(0, 5)), floors(compiled(conv_step(blocks=3, batch=8)))
    assert (chain, conv) == (sorted(chain), sorted(conv))
    assert len(conv) >= 3


@given(graphs(min_nodes=2, max_nodes=8))
def test_floors_of_any_graph_do_not_rise(graph):
    step = compile_problem(graph, toy_registry())
    found = floors(step, (0.1, 0.6))
    assert found == sorted(found)
    outcome = least_memory(step, math.inf, Limits())
    least = outcome.require()
    check_sequence(graph, least)
    assert least.peak_with_workspace_bytes <= min([*found, peak_of(step)])
    assert outcome.termination.bound <= outcome.termination.best == least.peak_with_workspace_bytes


@together("options", [{}, {"strategy": "greedy_recompute"}, {"atomic": True}], quick=(0,))
def test_the_lowest_peak_is_a_budget(options):
    made = transformer_step(layers=1)
    pricing = given_pricing(made.registry, made.seconds)

    def planned(peak, latency=None):
        asked = GraphAsk(Budget(peak, latency), limits=Limits(work=300), **options)
        return plan_graph(made.graph, pricing, asked).program

    least = planned("min")
    peak = least.predictions.peak_with_workspace_bytes
    assert least.budget_bytes == peak
    assert least.moves.recomputations
    assert least.termination.reason in {TerminationReason.OPTIMAL, TerminationReason.FEASIBLE}
    assert "within the limit on time" not in least.termination.detail
    for share in ("30%", "90%"):
        assert peak <= planned(share).predictions.peak_with_workspace_bytes
    quick = planned("min", "+3%")
    assert quick.predictions.seconds <= 1.03 * quick.predictions.baseline_seconds
    assert peak <= quick.predictions.peak_with_workspace_bytes


def test_the_lowest_peak_in_words():
    assert [Budget(peak).is_min for peak in ("min", " MIN ", "50%", None)] == [True, True, False, False]
    assert Budget("min").resolve(1000) == 1000
    with pytest.raises(InvalidBudget, match="is no budget"):
        Budget("minimum")


# -- the user's own schedule is taken where it is better, and made better still


def test_the_users_own_schedule_gives_way_to_nothing_worse():
    """Blocks checkpointed by hand, as they would be found in the user's code."""
    made, limits = transformer_step(layers=4), Limits(work=500)
    step = compiled(made)
    own = per_block.solve(PlanningProblem(step, step.lower_bound_bytes), limits).require()
    own = PlannedSequence.evaluate(step, own.sequence, "as_written")

    def beside(budget):
        searched = program_order.solve(PlanningProblem(step, budget), limits)
        return searched, no_worse_than(own, searched, step, budget, limits)

    budget = own.peak_with_workspace_bytes
    missed, outcome = beside(budget)
    found = outcome.require()
    assert missed.require().peak_with_workspace_bytes > budget
    check_sequence(made.graph, found, None, made.registry)
    assert found.rank(budget) <= own.rank(budget)
    assert (outcome.termination.reason, outcome.termination.best) == (
        TerminationReason.FEASIBLE,
        found.seconds,
    )
    repeated = sum(unit.seconds for unit in units_of(step, found))
    assert repeated == pytest.approx(found.seconds - step.baseline_seconds)
    # Above the budget the lower one is taken, and the bound stays.
    missed, outcome = beside(step.lower_bound_bytes - 1)
    ended, peak = outcome.termination, outcome.require().peak_with_workspace_bytes
    assert peak <= own.peak_with_workspace_bytes
    assert (ended.reason, ended.bound) == (missed.termination.reason, missed.termination.bound)
    assert ended.best == peak
    # A better answer of the search is left as it is.
    searched, outcome = beside(peak_of(step))
    assert outcome is searched
