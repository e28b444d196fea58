from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neaptide.outcome import Limits, TerminationReason
from neaptide.planner.objective import PlannedSequence
from neaptide.planner.portfolio import plan_sequence
from neaptide.planner.recompute.curve.least_memory import least_memory, least_memory_by
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.problem import compile_problem
from neaptide_corpus.recompute_forms import FAMILIES
from neaptide_corpus.training_steps import conv_step, toy_registry, transformer_step
from planner.chain_play import chain_step
from planner.planner_problems import (
    check_sequence,
    compiled,
    instance,
    least_seconds,
    there_and_back,
    units_of,
)
from support.drawn import examples, graphs
from support.together import together

LIMITS = Limits(work=500)
SMALL = {transformer_step: {"layers": 2}, conv_step: {"blocks": 2}}


def once(step):
    """Seconds of every operation once."""
    return step.sequence_seconds(range(step.node_count))


def check(step, outcome, longest):
    found, ended = outcome.require(), outcome.termination
    again = PlannedSequence.evaluate(step, found.sequence, found.strategy)
    assert again == found
    assert found.seconds <= longest
    assert found.peak_with_workspace_bytes <= Evaluator(step).peak
    assert step.lower_bound_bytes <= ended.bound <= ended.best == found.peak_with_workspace_bytes
    assert (ended.reason is TerminationReason.OPTIMAL) == (ended.bound == ended.best)
    assert sum(unit.seconds for unit in units_of(step, found)) == pytest.approx(found.seconds - once(step))
    return found


@together("family", FAMILIES, quick=("skips",))
def test_more_time_never_needs_more_memory(family):
    step = instance(family, 30)
    peaks = []
    for more in (0.0, 0.02, 0.3):
        longest = (1 + more) * once(step)
        peaks.append(check(step, least_memory(step, longest, LIMITS), longest).peak_with_workspace_bytes)
    assert peaks == sorted(peaks, reverse=True)
    assert peaks[-1] < 0.9 * peaks[0]


@together("seed", range(examples(12)))
@together("more", [0.0, 0.15, 0.4], quick=(0, 1))
def test_the_bound_holds_against_brute_force(seed, more):
    step = there_and_back(seed)
    longest = (1 + more) * once(step)
    outcome = least_memory(step, longest, Limits())
    found = check(step, outcome, longest)

    def is_reached(budget):
        seconds = least_seconds(step, budget, most=3)
        return seconds is not None and seconds <= longest * (1 + 1e-12)

    least = next(b for b in range(step.lower_bound_bytes, Evaluator(step).peak + 1) if is_reached(b))
    assert outcome.termination.bound <= least <= found.peak_with_workspace_bytes


@together("name", [None, "greedy_recompute"])
def test_less_time_than_every_operation_takes_once_is_proved_to_be_too_little(name):
    step = instance("transformer")
    asked = (step, 0.9 * once(step), LIMITS)
    outcome = least_memory(*asked) if name is None else least_memory_by(name, *asked)
    assert outcome.termination.reason is TerminationReason.INFEASIBLE
    assert "takes less than" in outcome.termination.detail
    assert outcome.require().seconds == once(step)


@together("name", ["greedy_recompute", "sqrt-n", "dtr"])
def test_one_strategy_alone_is_asked_for_budgets(name):
    step = instance("transformer")
    longest = 1.2 * once(step)
    outcome = least_memory_by(name, step, longest, Limits(work=4000))
    found = check(step, outcome, longest)
    assert found.peak_with_workspace_bytes < Evaluator(step).peak
    assert outcome.work <= 4000


@together("make", [transformer_step, conv_step])
def test_steps_with_updates_views_and_writes_in_place(make):
    made = make(**SMALL[make])
    step = compiled(made)
    longest = 1.1 * once(step)
    check_sequence(made.graph, check(step, least_memory(step, longest, LIMITS), longest))


def test_an_order_that_is_given_is_kept():
    step = compiled(transformer_step(**SMALL[transformer_step]))
    longest = 1.1 * once(step)
    order = tuple(range(step.node_count))
    found = check(step, least_memory(step, longest, LIMITS, order=order), longest)
    assert tuple(dict.fromkeys(found.sequence)) == order
    assert found.peak_with_workspace_bytes < Evaluator(step).peak
    free = check(step, least_memory(step, longest, LIMITS), longest)
    assert tuple(dict.fromkeys(free.sequence)) != order


def test_no_worse_than_a_plan_that_is_known():
    step = instance("transformer", 40)
    longest = 1.1 * once(step)
    best = least_memory(step, longest, LIMITS).require()
    outcome = least_memory(step, longest, Limits(work=0), known=[best])
    assert check(step, outcome, longest).sequence == best.sequence


@settings(max_examples=examples(60), deadline=None)
@given(graphs(), st.sampled_from([1.0, 1.1, 1.6]))
def test_plans_of_random_graphs_are_legal(graph, times):
    step = compile_problem(graph, toy_registry())
    longest = times * once(step)
    check_sequence(graph, check(step, least_memory(step, longest, Limits(work=500)), longest))


def test_a_chain_of_equal_operations_gets_down_to_four_of_them():
    step = chain_step(28, size=1)
    found = check(step, least_memory(step, math.inf, Limits(work=6000)), math.inf)
    assert found.peak_with_workspace_bytes == step.lower_bound_bytes == 4


def test_a_budget_below_the_floor_gets_no_less_than_the_plan_of_the_lowest_peak():
    step = instance("transformer", 40, seed=3)
    limits = Limits(work=600)
    lowest = least_memory(step, math.inf, limits).require()
    least = lowest.peak_with_workspace_bytes
    for budget in (step.lower_bound_bytes - 1, least - 1, least):
        found = plan_sequence(step, budget, limits).require()
        assert found.rank(budget) <= lowest.rank(budget)
