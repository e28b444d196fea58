from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neaptide.outcome import LimitGuard, Limits, TerminationReason
from neaptide.planner.objective import PlannedSequence, PlanningProblem
from neaptide.planner.strategies import greedy_recompute, program_order
from neaptide.schedule.problem import compile_problem
from neaptide_corpus.training_steps import conv_step, toy_registry, transformer_step
from planner_problems import compiled, judge, units_of
from strategies import graphs
from together import together


def budget_of(step, share):
    """A share of what program order has beyond the resident bytes."""
    peak = program_order.baseline(step).peak_with_workspace_bytes
    return step.resident_bytes + int(share * (peak - step.resident_bytes))


@together("share", [0.8, 0.6, 0.45])
@together(
    "made",
    [
        transformer_step(layers=6),
        transformer_step(layers=6, dropout=True, clip=True),
        conv_step(blocks=8, batch=32),
    ],
    ids=["transformer", "dropout", "conv"],
)
def test_training_steps_reach_their_budget_at_a_moderate_price(made, share):
    step = compiled(made)
    budget = budget_of(step, share)
    found = greedy_recompute.solve(PlanningProblem(step, budget), Limits()).require()
    judge(made.graph, found, None, made.registry)
    assert found.peak_with_workspace_bytes <= budget
    # One extra forward, what checkpointing every block costs, is about a third.
    assert found.seconds < 1.33 * step.baseline_seconds


def test_units_say_what_is_made_again_and_what_it_costs():
    made = conv_step(blocks=4)
    step = compiled(made)
    found = greedy_recompute.solve(PlanningProblem(step, budget_of(step, 0.6)), Limits()).require()
    units = units_of(step, found)
    assert units
    assert sum(unit.seconds for unit in units) == pytest.approx(found.seconds - step.baseline_seconds)
    assert sum(len(unit.nodes) for unit in units) == len(found.sequence) - step.node_count


def test_dropout_and_batch_norm_may_be_replayed():
    """The one draws under the state that it had the first time, the other leaves its running statistics alone."""
    for made, op in (
        (transformer_step(layers=4, dropout=True), "toy.dropout"),
        (conv_step(blocks=4), "toy.batch_norm"),
    ):
        step = compiled(made)
        found = greedy_recompute.solve(PlanningProblem(step, budget_of(step, 0.4)), Limits()).require()
        judge(made.graph, found, None, made.registry)
        ops = [made.graph.nodes[n].op for n in found.sequence]
        in_program = [n.op for n in made.graph.nodes].count(op)
        assert ops.count(op) > in_program


def test_the_budget_is_held_on_the_peak_with_workspace():
    made = transformer_step(layers=4)
    scratch = {n.id: 2_000_000 for n in made.graph.nodes if n.op == "toy.attention_backward"}
    step = compiled(made, scratch)
    budget = budget_of(step, 0.75)
    found = greedy_recompute.solve(PlanningProblem(step, budget), Limits()).require()
    judge(made.graph, found, scratch, made.registry)
    assert found.peak_bytes < found.peak_with_workspace_bytes <= budget


@given(st.data(), st.floats(0.3, 1.0))
def test_any_graph_stays_legal_and_no_higher(data, share):
    graph = data.draw(graphs(min_nodes=2))
    workspace = {node.id: 7 for node in graph.nodes[::3]}
    step = compile_problem(graph, toy_registry(), workspace=workspace)
    before = program_order.baseline(step)
    problem = PlanningProblem(step, int(share * before.peak_with_workspace_bytes))
    outcome = greedy_recompute.solve(problem, Limits())
    after = outcome.require()
    judge(graph, after, workspace)
    assert after.peak_with_workspace_bytes <= before.peak_with_workspace_bytes
    factors = greedy_recompute.noisy_factors(step, 1.0, 1)
    noisy = greedy_recompute.GreedyRecompute(problem, LimitGuard(Limits()), factors, slack=0.5)
    noisy.repair()
    judge(graph, PlannedSequence.of(noisy.evaluator, "noisy"), workspace)


def test_a_budget_that_is_met_costs_nothing_and_is_proved():
    made = transformer_step(layers=2)
    step = compiled(made)
    outcome = greedy_recompute.solve(PlanningProblem(step, budget_of(step, 1.0)), Limits())
    assert outcome.termination.reason is TerminationReason.OPTIMAL
    assert outcome.require().sequence == tuple(range(step.node_count))


def test_more_work_is_never_worse_and_work_is_reproducible():
    made = conv_step(blocks=6)
    step = compiled(made)
    problem = PlanningProblem(step, budget_of(step, 0.4))
    peaks = []
    for work in (0, 5, 50, 5000):
        first = greedy_recompute.solve(problem, Limits(work=work))
        assert first.require() == greedy_recompute.solve(problem, Limits(work=work)).require()
        assert first.work <= work
        peaks.append(first.require().peak_bytes)
    assert peaks == sorted(peaks, reverse=True)
