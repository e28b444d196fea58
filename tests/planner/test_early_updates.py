from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neaptide.outcome import Limits, TerminationReason
from neaptide.planner.objective import PlanningProblem
from neaptide.planner.strategies import early_updates, program_order
from neaptide.planner.updates import update_groups, update_name, update_nodes, updates_moved_earlier
from neaptide.schedule.problem import compile_problem
from neaptide_corpus.training_steps import conv_step, toy_registry, transformer_step
from planner_problems import compiled, judge
from strategies import graphs, node_orders


def solved(made, workspace=None):
    step = compiled(made, workspace)
    problem = PlanningProblem(step, 0)
    found = early_updates.solve(problem, Limits()).require()
    judge(made.graph, found, workspace, made.registry)
    return step, program_order.solve(problem, Limits()).require(), found


def test_a_step_whose_gradients_pile_up_gets_lower():
    made = transformer_step(layers=6, tokens=16, width=64, optimizer="sgd")
    step, before, after = solved(made)
    transient = [p.peak_bytes - step.resident_bytes for p in (before, after)]
    assert transient[1] < 0.5 * transient[0]
    assert after.seconds == pytest.approx(before.seconds)
    assert sorted(after.sequence) == list(range(step.node_count))
    assert not updates_moved_earlier(step, before.sequence)
    moved = updates_moved_earlier(step, after.sequence)
    assert {update_name(step, group) for group in moved} >= {"head", "h0_qkv"}


def test_a_global_norm_is_a_barrier_by_itself():
    made = transformer_step(layers=6, tokens=16, width=64, optimizer="sgd", clip=True)
    _, before, after = solved(made)
    factor = next(n.id for n in made.graph.nodes if n.op == "toy.clip_factor")
    owned = set(made.graph.input_storages())
    updates = [n.id for n in made.graph.nodes if any(a.storage in owned for a in n.effects.writes)]
    reads_gradients = [n for n in updates if n > factor and len(made.graph.nodes[n].inputs) > 1]
    assert min(map(after.sequence.index, reads_gradients)) > after.sequence.index(factor)
    assert after.peak_bytes <= before.peak_bytes


def test_an_update_that_needs_more_than_it_frees_waits():
    made = transformer_step(layers=2, tokens=256)
    hungry = {n.id: 10**6 for n in made.graph.nodes if n.op == "toy.sqrt"}
    _, before, after = solved(made, hungry)
    assert after.peak_with_workspace_bytes <= before.peak_with_workspace_bytes
    hungrier = {n.id: 10**8 for n in made.graph.nodes if n.op == "toy.sqrt"}
    _, before, after = solved(made, hungrier)
    assert after.peak_with_workspace_bytes <= before.peak_with_workspace_bytes


@pytest.mark.parametrize(
    "made", [conv_step(blocks=5), transformer_step(layers=3, dropout=True)], ids=["conv", "gpt"]
)
def test_never_worse_than_program_order(made):
    _, before, after = solved(made)
    assert after.peak_with_workspace_bytes <= before.peak_with_workspace_bytes


def test_no_work_left_means_program_order():
    made = transformer_step(layers=6, tokens=16, width=64)
    step = compiled(made)
    outcome = early_updates.solve(PlanningProblem(step, 0), Limits(work=0))
    assert outcome.require().sequence == tuple(range(step.node_count))
    assert (outcome.termination.reason, outcome.termination.limit) == (TerminationReason.FEASIBLE, "work")


@given(graphs(max_nodes=12), st.data())
def test_updates_that_moved_are_those_that_run_before_what_they_stood_behind(graph, data):
    step = compile_problem(graph, toy_registry())
    order = data.draw(node_orders(graph))
    updates = update_nodes(step)
    expected = [
        group
        for group in update_groups(step, updates)
        if group.read_bytes
        and any(
            order.index(node) > order.index(group.nodes[-1])
            for node in range(group.nodes[-1])
            if node not in updates
        )
    ]
    assert updates_moved_earlier(step, order) == expected
    for group in expected:
        assert update_name(step, group) in step.storage_names
