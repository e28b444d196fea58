"""What one search met counts for the next: no answer is worse than a plan that was met, and the same is found again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from neaptide.budget import Budget
from neaptide.outcome import Limits
from neaptide.planner.strategies.program_order import baseline
from neaptide.planner.variants import search
from neaptide.planner.variants.met import MetPlans, for_limit
from neaptide.planner.variants.price import Goal
from neaptide.planner.variants.search import MERGED
from planner.variants import variant_search
from planner.variants.variant_search import PRICING
from support.catalogue import graph_of
from support.steps import rows_step, wide_head


@pytest.fixture(scope="module")
def graph():
    return graph_of(rows_step)


def asked_for(graph, ratio):
    before = baseline(PRICING.problem(graph))
    return Budget(None, latency=ratio * before.seconds), before.peak_with_workspace_bytes


def searched(graph, ratio, met, work):
    return variant_search.searched(graph, asked_for(graph, ratio)[0], Limits(None, work), met=met)


def front(graph, works):
    met = MetPlans()
    return met, [searched(graph, ratio, met, work) for ratio, work in works]


def figures(plan):
    made = plan.found.program.predictions
    return made.peak_with_workspace_bytes, made.seconds


@pytest.mark.parametrize(
    ("before", "ratio"), [(1.5, 1.4), pytest.param(1000.0, 900.0, marks=pytest.mark.slow)]
)
def test_a_search_begins_with_what_was_met(graph, before, ratio):
    met = MetPlans()
    searched(graph, before, met, 600)
    goal = Goal.of(*asked_for(graph, ratio), baseline(PRICING.problem(graph)).seconds)
    best = met.best(goal)
    later = searched(graph, ratio, met, 1)  # a unit of work finds nothing by itself
    assert figures(later)[1] <= goal.longest
    assert goal.rank(*figures(later)) <= goal.rank(*figures(best))
    assert later.variant.rewrites in [plan.variant.rewrites for plan in met.variants()]
    in_parts = [one for one in met.variants() if "parts" in one.label]
    assert any(met.of(one.variant) for one in in_parts) == (ratio > 2)


@pytest.mark.slow
def test_the_whole_step_is_priced_whatever_its_estimate_says(monkeypatch):
    graph = graph_of(wide_head)
    honest = search.estimates

    def dear(*arguments):
        found = honest(*arguments)
        return [replace(one, added_seconds=1e3) if one.choice.is_whole_step else one for one in found]

    def wholes():
        return [one.estimate.parts for one in met.all_priced() if one.estimate.choice.is_whole_step]

    monkeypatch.setattr(search, "estimates", dear)
    met, _ = front(graph, [(1.2, 400)])
    assert met.all_priced()
    assert not wholes()
    searched(graph, 1.6, met, 400)
    assert wholes()


def test_plans_of_a_variant_are_kept_where_none_beats_them(graph):
    met, plans = front(graph, [(1.2, 400), (1.6, 400)])
    for plan in plans:
        kept = [one.program.predictions for one in met.of(plan.variant)]
        points = [(one.seconds, one.peak_with_workspace_bytes) for one in kept]
        assert points == sorted(points)
        assert [peak for _, peak in points] == sorted({peak for _, peak in points}, reverse=True)
        peak, seconds = figures(plan)
        assert any(one <= seconds and other <= peak for one, other in points)


def test_bounds_of_another_limit_are_dropped(graph):
    _, (plan,) = front(graph, [(1.5, 400)])
    program = plan.found.program
    made = program.predictions
    peak, seconds = made.peak_with_workspace_bytes, made.seconds
    within = for_limit(program, Goal(peak, 2 * seconds)).termination
    assert (within.reason, within.best, within.bound) == ("feasible", peak, None)
    timed = for_limit(program, Goal(peak, None)).termination
    assert (timed.reason, timed.best, timed.bound) == ("feasible", seconds, None)
    for beyond in (Goal(peak, seconds / 2), Goal(peak - 1, None)):
        assert for_limit(program, beyond).termination.reason == "no_solution_found"


def test_what_was_priced_is_planned_for_another_limit(graph):
    """A variant that takes too long for one limit is priced for it, and planned for a longer one at once."""
    met = MetPlans()
    searched(graph, 1.2, met, 600)
    in_parts = [one for one in met.variants() if "parts" in one.label]
    assert in_parts
    for one in in_parts:
        assert not met.of(one.variant)
        assert one.plans == (baseline(PRICING.problem(one.variant.graph)),)
    found = searched(graph, 1000.0, met, 600)
    assert any(met.of(one.variant) for one in in_parts)
    assert "parts" in found.label


@pytest.mark.slow
def test_a_variant_that_was_planned_keeps_its_program_order(graph):
    """For a shorter limit a plan that recomputes says too little: program order may be within it."""
    met = MetPlans()
    searched(graph, 1000.0, met, 600)
    in_parts = [one for one in met.variants() if met.of(one.variant) and "parts" in one.label]
    assert in_parts
    for one in in_parts:
        written = baseline(PRICING.problem(one.variant.graph))
        assert written.seconds >= one.plans[0].seconds
        seconds = [made.seconds for made in one.plans]
        assert seconds == sorted(seconds)


@pytest.mark.slow
def test_what_costs_nothing_is_planned_for_a_shorter_limit():
    """Its plan for a long limit recomputes, and takes longer than the graph as it is. In program order it is faster."""
    graph = graph_of(wide_head)
    met = MetPlans()
    searched(graph, 1.5, met, 600)
    before = baseline(PRICING.problem(graph))
    merged = [one for one in met.variants() if one.label == MERGED]
    assert [one.plans[0].seconds < 0.98 * before.seconds for one in merged] == [True]
    assert all(found.program.predictions.seconds > before.seconds for found in met.of(merged[0].variant))
    peak, seconds = figures(searched(graph, 0.98, met, 600))
    assert seconds <= 0.98 * before.seconds
    assert peak < before.peak_with_workspace_bytes
