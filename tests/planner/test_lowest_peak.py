"""The lowest peak that is found: as a budget of its own, and as the floor of a budget that is out of reach."""

from __future__ import annotations

import math

import pytest
from hypothesis import given

from given_cost import given_pricing
from neaptide.budget import Budget
from neaptide.errors import InvalidBudget
from neaptide.outcome import Limits, TerminationReason
from neaptide.planner.plan_graph import GraphAsk, plan_graph
from neaptide.planner.portfolio import plan_sequence
from neaptide.planner.recompute.curve.least_memory import least_memory
from neaptide.planner.strategies.program_order import baseline
from neaptide.schedule.problem import compile_problem
from neaptide_corpus.training_steps import conv_step, toy_registry, transformer_step
from planner_problems import compiled, judge, random_chain
from strategies import graphs

MADE = {
    "transformer": transformer_step(layers=1),
    "conv": conv_step(blocks=3, batch=8),
}
SHARES = (0.05, 0.3, 0.5, 0.7)


def floors(step, shares=SHARES):
    """Peaks that budgets out of reach end with, the lowest budget first; those in reach left out."""
    peak = baseline(step).peak_with_workspace_bytes
    found = []
    for share in shares:
        plan = plan_sequence(step, int(share * peak), Limits()).require()
        if plan.peak_with_workspace_bytes > int(share * peak):
            found.append(plan.peak_with_workspace_bytes)
    return found


def test_asking_for_less_never_ends_with_a_higher_floor():
    for step in (compiled(MADE["conv"]), random_chain(0, 5)):
        found = floors(step)
        assert found == sorted(found)
    assert len(floors(compiled(MADE["conv"]))) >= 3


@given(graphs(min_nodes=2, max_nodes=8))
def test_floors_of_any_graph_do_not_rise(graph):
    step = compile_problem(graph, toy_registry())
    found = floors(step, (0.1, 0.6))
    assert found == sorted(found)
    outcome = least_memory(step, math.inf, Limits())
    least = outcome.require()
    judge(graph, least)
    assert all(least.peak_with_workspace_bytes <= other for other in found)
    assert least.peak_with_workspace_bytes <= baseline(step).peak_with_workspace_bytes
    assert outcome.termination.bound <= outcome.termination.best == least.peak_with_workspace_bytes


@pytest.mark.parametrize("options", [{}, {"strategy": "greedy_recompute"}, {"atomic": True}])
def test_the_lowest_peak_is_a_budget(options):
    made = MADE["transformer"]
    pricing = given_pricing(made.registry, made.seconds)

    def planned(peak, latency=None):
        asked = GraphAsk(Budget(peak, latency), limits=Limits(work=2000), **options)
        return plan_graph(made.graph, pricing, asked).program

    least = planned("min")
    peak = least.predictions.peak_with_workspace_bytes
    assert least.budget_bytes == peak
    assert least.moves.recomputations
    assert least.termination.reason in {TerminationReason.OPTIMAL, TerminationReason.FEASIBLE}
    assert "within the limit on time" not in least.termination.detail
    for share in ("30%", "60%", "90%"):
        assert peak <= planned(share).predictions.peak_with_workspace_bytes
    quick = planned("min", "+3%")
    assert quick.predictions.seconds <= 1.03 * quick.predictions.baseline_seconds
    assert peak <= quick.predictions.peak_with_workspace_bytes


def test_the_lowest_peak_in_words():
    assert Budget("min").is_min
    assert Budget(" MIN ").is_min
    assert not Budget("50%").is_min
    assert not Budget(None).is_min
    assert Budget("min").resolve(1000) == 1000
    with pytest.raises(InvalidBudget, match="is no budget"):
        Budget("minimum")
