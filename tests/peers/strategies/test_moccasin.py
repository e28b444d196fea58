from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from example_counts import examples
from neaptide.outcome import Limits, TerminationReason
from neaptide.planner.objective import PlannedSequence, PlanningProblem
from neaptide.planner.recompute.bounds.certificate import recompute_bound
from neaptide.planner.recompute.units import stage_units
from neaptide.planner.strategies import greedy_recompute, program_order
from neaptide.schedule.problem import compile_problem
from neaptide_corpus.training_steps import conv_step, toy_registry, transformer_step
from neaptide_peers.cp_sat import process
from neaptide_peers.cp_sat.check import check_solution
from neaptide_peers.cp_sat.solve import CpSatSession, solve_all
from neaptide_peers.strategies import moccasin
from neaptide_peers.strategies.stages.interval_model import IntervalModel
from peers.strategies.stage_instances import cases
from planner_problems import compiled, judge, least_seconds
from strategies import graphs

needs_ortools = pytest.mark.skipif(not process.is_installed(), reason="needs ortools")


def sequence_of(model, outcome):
    repeated = model.repeated(outcome.value.values)
    return model.units.sequence((stage, unit) for stage, again in enumerate(repeated) for unit in again)


@pytest.fixture(scope="module")
def session():
    with CpSatSession() as running:
        yield running


@needs_ortools
@pytest.mark.parametrize("number", [20, pytest.param(1_000, marks=pytest.mark.slow)])
def test_it_agrees_with_brute_force_and_bounds_lie_below(number):
    instances = cases(number)
    models = [IntervalModel(stage_units(step, range(step.node_count)), budget) for step, budget in instances]
    solved = 0
    for (step, budget), model, outcome in zip(
        instances, models, solve_all([m.model for m in models]), strict=True
    ):
        best = least_seconds(step, budget, most=2, in_stages=True)
        if best is None:
            assert outcome.termination.reason is TerminationReason.INFEASIBLE
            continue
        solved += 1
        assert outcome.termination.reason is TerminationReason.OPTIMAL
        sequence = sequence_of(model, outcome)
        found = PlannedSequence.evaluate(step, sequence, "moccasin")
        assert found.peak_with_workspace_bytes <= budget
        assert found.seconds == pytest.approx(best)
        extra = model.seconds(outcome.value.objective)
        assert extra <= best - step.baseline_seconds + 1e-9
        assert extra == pytest.approx(best - step.baseline_seconds, abs=1e-6 * best)
        assert recompute_bound(step, budget).seconds <= best + 1e-9
    assert solved >= 0.5 * number


@needs_ortools
def test_a_hint_within_the_budget_is_a_solution():
    complete = 0
    for step, budget in cases(60):
        found = greedy_recompute.solve(PlanningProblem(step, budget), Limits()).require()
        is_small = max(map(found.sequence.count, range(step.node_count))) <= 2
        if found.peak_with_workspace_bytes > budget or not is_small:
            continue
        units = stage_units(step, range(step.node_count))
        model = IntervalModel(units, budget, hint=found.sequence).model
        hinted = dict(model.hints)
        assert sorted(hinted) == list(range(len(model.variables)))
        check_solution(model, tuple(hinted[v] for v in range(len(model.variables))))
        complete += 1
    assert complete >= 20


@needs_ortools
@pytest.mark.parametrize(
    "made", [transformer_step(layers=2, dropout=True), conv_step(blocks=3, batch=32)], ids=["gpt", "conv"]
)
def test_training_steps_are_no_slower_than_what_it_was_started_from(made):
    step = compiled(made)
    peak = program_order.baseline(step).peak_with_workspace_bytes
    problem = PlanningProblem(step, step.resident_bytes + int(0.7 * (peak - step.resident_bytes)))
    outcome = moccasin.solve(problem, Limits(work=20_000))
    found = outcome.require()
    judge(made.graph, found, None, made.registry)
    greedy = greedy_recompute.solve(problem, Limits()).require()
    assert found.rank(problem.budget_bytes)[:2] <= greedy.rank(problem.budget_bytes)[:2]
    assert found.strategy == "moccasin"
    assert "order of first executions" in outcome.termination.detail


@needs_ortools
@given(st.data(), st.floats(0.3, 1.0))
@settings(max_examples=examples(60), deadline=None)
def test_solutions_on_any_graph_are_legal_sequences_within_their_bytes(session, data, share):
    graph = data.draw(graphs(min_nodes=2, max_nodes=12))
    step = compile_problem(graph, toy_registry())
    before = program_order.baseline(step)
    budget = max(int(share * before.peak_with_workspace_bytes), step.resident_bytes)
    greedy = greedy_recompute.solve(PlanningProblem(step, budget), Limits()).require()
    model = IntervalModel(stage_units(step, range(step.node_count)), budget, hint=greedy.sequence)
    outcome = session.solve(model.model, Limits(work=20_000))
    if outcome.value is not None:
        sequence = sequence_of(model, outcome)
        found = PlannedSequence.evaluate(step, sequence, "moccasin")
        judge(graph, found)
        if not any(len(writers) for writers in step.writers):
            assert found.peak_with_workspace_bytes <= budget
            assert found.seconds <= step.baseline_seconds + model.seconds(outcome.value.objective) + 1e-6


def test_what_needs_no_solver_starts_none(monkeypatch):
    monkeypatch.setattr(process, "is_installed", lambda: False)
    small = compiled(transformer_step(layers=1))
    peak = program_order.baseline(small).peak_with_workspace_bytes
    free = moccasin.solve(PlanningProblem(small, peak), Limits())
    assert free.termination.reason is TerminationReason.OPTIMAL
    large = compiled(transformer_step(layers=24))
    peak = program_order.baseline(large).peak_with_workspace_bytes
    handed = moccasin.solve(PlanningProblem(large, peak - 1), Limits(work=100))
    assert handed.termination.detail.startswith("too large")
