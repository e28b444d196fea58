"""Checkmate and Moccasin: exact plans in stages, against brute force."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neaptide.ir.builder import GraphBuilder
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
from neaptide_peers.strategies import checkmate, moccasin
from neaptide_peers.strategies.stages.interval_model import IntervalModel
from neaptide_peers.strategies.stages.program import StageProgram, Verdict
from peers.strategies.stage_instances import cases
from planner.planner_problems import check_sequence, compiled, least_seconds, units_of
from support.drawn import examples, graphs


@pytest.mark.parametrize("number", [20, pytest.param(1_000, marks=pytest.mark.slow)])
def test_it_agrees_with_brute_force_and_bounds_lie_below(number):
    solved = repeated = 0
    for step, budget in cases(number):
        best = least_seconds(step, budget, most=None, in_stages=True)
        outcome = checkmate.solve(PlanningProblem(step, budget), Limits())
        ended = outcome.termination
        program = StageProgram(stage_units(step, range(step.node_count)), budget)
        relaxed = program.relaxed_seconds() + step.baseline_seconds
        if best is None:
            assert ended.reason is TerminationReason.NO_SOLUTION_FOUND
            continue
        solved += 1
        found = outcome.require()
        repeated += found.seconds > step.baseline_seconds
        assert found.peak_with_workspace_bytes <= budget
        assert found.seconds == pytest.approx(best)
        assert ended.reason is TerminationReason.OPTIMAL
        assert ended.bound == pytest.approx(best, rel=1e-4)
        assert relaxed <= best + 1e-9
        assert recompute_bound(step, budget).seconds <= best + 1e-9
        # Repetitions in any order may be faster, never slower.
        assert least_seconds(step, budget, most=None) <= best + 1e-9
    assert solved >= 0.6 * number
    assert repeated >= 0.4 * number


@pytest.mark.parametrize(
    "made",
    [transformer_step(layers=1, dropout=True, optimizer="sgd"), conv_step(blocks=1, batch=32)],
    ids=["gpt", "conv"],
)
def test_training_steps_are_solved(made):
    step = compiled(made)
    peak = program_order.baseline(step).peak_with_workspace_bytes
    problem = PlanningProblem(step, step.persistent_bytes + int(0.9 * (peak - step.persistent_bytes)))
    outcome = checkmate.solve(problem, Limits(work=200))
    found = outcome.require()
    check_sequence(made.graph, found, None, made.registry)
    greedy = greedy_recompute.solve(problem, Limits()).require()
    assert found.rank(problem.budget_bytes)[:2] <= greedy.rank(problem.budget_bytes)[:2]
    assert outcome.termination.reason is TerminationReason.OPTIMAL
    assert found.strategy == "checkmate"
    assert units_of(step, found)


def test_a_start_prunes_and_is_never_lost():
    for step, budget in cases(10):
        problem = PlanningProblem(step, budget)
        greedy = greedy_recompute.solve(problem, Limits()).require()
        cold = checkmate.solve(problem, Limits()).require()
        warm = checkmate.solve(PlanningProblem(step, budget, start=greedy.sequence), Limits()).require()
        assert warm.rank(budget) <= greedy.rank(budget)
        if cold.peak_with_workspace_bytes <= budget:
            assert warm.seconds <= cold.seconds + 1e-9


def test_what_is_too_large_is_handed_back():
    step = compiled(transformer_step(layers=12))
    budget = program_order.baseline(step).peak_with_workspace_bytes - 1
    outcome = checkmate.solve(PlanningProblem(step, budget), Limits())
    assert outcome.require().sequence == tuple(range(step.node_count))
    assert outcome.termination.reason is TerminationReason.FEASIBLE
    assert outcome.termination.detail.startswith("too large")


def test_where_nothing_can_run_again_the_start_is_all_there_is():
    builder = GraphBuilder("refused")
    x = builder.input("x", (8,))
    (a,) = builder.node("toy.unknown", x, outputs=["a: f32[8]"])
    builder.output(a)
    graph = builder.finish()
    step = compile_problem(graph, toy_registry())
    outcome = checkmate.solve(PlanningProblem(step, step.lower_bound_bytes - 1), Limits())
    check_sequence(graph, outcome.require())
    assert outcome.require().sequence == (0,)
    assert outcome.termination.reason is TerminationReason.NO_SOLUTION_FOUND
    units = stage_units(step, (0,))
    assert StageProgram(units, step.lower_bound_bytes).solve(nodes=1).verdict is Verdict.PROVED


def test_a_budget_below_what_the_caller_owns_is_refuted():
    step = compiled(conv_step(blocks=1))
    program = StageProgram(stage_units(step, range(step.node_count)), step.persistent_bytes - 1)
    assert program.relaxed_seconds() == math.inf
    assert program.solve(nodes=1).verdict is Verdict.INFEASIBLE


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
def test_moccasin_agrees_with_brute_force_and_bounds_lie_below(number):
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
    problem = PlanningProblem(step, step.persistent_bytes + int(0.7 * (peak - step.persistent_bytes)))
    outcome = moccasin.solve(problem, Limits(work=20_000))
    found = outcome.require()
    check_sequence(made.graph, found, None, made.registry)
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
    budget = max(int(share * before.peak_with_workspace_bytes), step.persistent_bytes)
    greedy = greedy_recompute.solve(PlanningProblem(step, budget), Limits()).require()
    model = IntervalModel(stage_units(step, range(step.node_count)), budget, hint=greedy.sequence)
    outcome = session.solve(model.model, Limits(work=20_000))
    if outcome.value is not None:
        sequence = sequence_of(model, outcome)
        found = PlannedSequence.evaluate(step, sequence, "moccasin")
        check_sequence(graph, found)
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
