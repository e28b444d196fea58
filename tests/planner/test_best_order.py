from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from example_counts import examples
from neaptide.outcome import Limits, TerminationReason
from neaptide.planner.objective import PlanningProblem
from neaptide.planner.strategies import best_order, early_updates, program_order
from neaptide.schedule.problem import compile_problem
from neaptide_corpus.random_graphs import random_graph
from neaptide_corpus.training_steps import toy_registry, transformer_step
from planner_problems import compiled, judge


@given(st.integers(0, 10**6), st.integers(2, 25))
@settings(max_examples=examples(120), deadline=None)
def test_orders_are_legal_and_never_above_the_start(seed, n):
    graph = random_graph(seed, n)
    step = compile_problem(graph, toy_registry())
    outcome = best_order.solve(PlanningProblem(step, 0), Limits(work=5000))
    found = outcome.require()
    judge(graph, found)
    assert sorted(found.sequence) == list(range(n))
    assert found.peak_with_workspace_bytes <= program_order.baseline(step).peak_with_workspace_bytes
    assert outcome.termination.bound <= found.peak_with_workspace_bytes
    if outcome.termination.reason is TerminationReason.OPTIMAL:
        assert outcome.termination.bound == found.peak_with_workspace_bytes


def test_updates_are_found_without_being_told_what_they_are():
    step = compiled(transformer_step(layers=2))
    hoisted = early_updates.solve(PlanningProblem(step, 0), Limits()).require()
    found = best_order.solve(PlanningProblem(step, 0), Limits(work=100_000)).require()
    assert found.peak_with_workspace_bytes <= hoisted.peak_with_workspace_bytes
