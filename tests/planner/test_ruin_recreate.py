from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neaptide.outcome import Limits
from neaptide.planner.objective import PlanningProblem
from neaptide.planner.strategies import greedy_recompute, program_order, ruin_recreate
from neaptide.schedule.problem import compile_problem
from neaptide_corpus.training_steps import conv_step, toy_registry, transformer_step
from planner_problems import compiled, judge, units_of
from strategies import graphs


@pytest.mark.parametrize(
    "made", [transformer_step(layers=4), conv_step(blocks=8, batch=32)], ids=["transformer", "conv"]
)
def test_a_plan_gets_no_worse_and_is_the_same_for_the_same_seed(made):
    step = compiled(made)
    peak = program_order.baseline(step).peak_bytes
    budget = step.resident_bytes + (peak - step.resident_bytes) // 2
    greedy = greedy_recompute.solve(PlanningProblem(step, budget), Limits()).require()
    problem = PlanningProblem(step, budget, greedy.sequence)
    one = ruin_recreate.solve(problem, Limits(work=600, seed=4))
    two = ruin_recreate.solve(problem, Limits(work=600, seed=4))
    assert one.value == two.value
    found = one.require()
    judge(made.graph, found, None, made.registry)
    assert found.rank(budget) <= greedy.rank(budget)
    assert sum(len(unit.nodes) for unit in units_of(step, found)) == len(found.sequence) - step.node_count


def test_without_recomputations_there_is_nothing_to_do():
    step = compiled(transformer_step(layers=1))
    found = ruin_recreate.solve(PlanningProblem(step, 0), Limits()).require()
    assert found.sequence == tuple(range(step.node_count))


@given(st.data(), st.floats(0.3, 0.9))
def test_any_graph_stays_legal(data, share):
    graph = data.draw(graphs(min_nodes=3, max_nodes=12))
    step = compile_problem(graph, toy_registry())
    budget = int(share * program_order.baseline(step).peak_bytes)
    greedy = greedy_recompute.solve(PlanningProblem(step, budget), Limits()).require()
    problem = PlanningProblem(step, budget, greedy.sequence)
    found = ruin_recreate.solve(problem, Limits(work=200)).require()
    judge(graph, found)
    assert found.rank(budget) <= greedy.rank(budget)
