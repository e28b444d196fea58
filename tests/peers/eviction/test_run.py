"""Runs under eviction: legal whatever the program does, within the budget, and linear where the paper says so."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neaptide.analysis.legality.schedule import check_schedule
from neaptide.ir.schedule import Schedule
from neaptide.outcome import Limits
from neaptide.planner.objective import PlannedSequence, PlanningProblem
from neaptide.planner.strategies import program_order, strategy
from neaptide.schedule.problem import compile_problem
from neaptide_corpus.random_graphs import random_graph
from neaptide_corpus.training_steps import conv_step, toy_registry, transformer_step
from neaptide_peers.eviction.policy import HEURISTICS, heuristic
from neaptide_peers.eviction.run import SimulationStopped
from neaptide_peers.eviction.settings import SETTINGS
from neaptide_peers.eviction.simulate import simulate
from planner.chain_play import chain_step
from planner.planner_problems import check_sequence, compiled
from support.drawn import examples, graphs, node_orders


@pytest.mark.parametrize("name", HEURISTICS)
@given(data=st.data(), share=st.floats(0.2, 1.0))
@settings(max_examples=examples(60))
def test_any_graph_in_any_order_is_run_legally(name, data, share):
    graph = data.draw(graphs(min_nodes=2, max_nodes=30))
    order = data.draw(node_orders(graph))
    workspace = {node.id: 7 for node in graph.nodes[::3]}
    step = compile_problem(graph, toy_registry(), workspace=workspace)
    budget = int(share * program_order.baseline(step).peak_with_workspace_bytes)
    run = simulate(step, order, heuristic(name), budget)
    planned = PlannedSequence.evaluate(step, run.sequence, name)
    check_sequence(graph, planned, workspace)
    assert tuple(dict.fromkeys(run.sequence)) == order
    assert planned.peak_with_workspace_bytes <= run.totals.peak_bytes


CIRCLES = {
    70: (40, {"views": False, "persistent": False}, 585),
    103: (40, {"views": False, "multi_output": False, "shape_only": False}, 1654),
    1270: (35, {"views": False, "shape_only": False, "rng": False}, 510),
}


@pytest.mark.parametrize("seed", CIRCLES)
def test_what_overwrites_in_circles_is_run_legally(seed):
    """Found by search: units that are made from each other's writers, and units that expire together."""
    nodes, features, budget = CIRCLES[seed]
    graph = random_graph(seed, nodes, **features)
    workspace = {node.id: 7 for node in graph.nodes[::3]}
    step = compile_problem(graph, toy_registry(), workspace=workspace)
    run = simulate(step, range(step.node_count), heuristic("dtr"), budget)
    check_schedule(graph, Schedule.from_nodes(graph, run.sequence), toy_registry())


@pytest.mark.parametrize("made", [transformer_step(layers=4, dropout=True), conv_step(blocks=5)])
@pytest.mark.parametrize("share", [0.9, 0.8])
def test_training_steps_keep_to_the_budget(made, share):
    step = compiled(made)
    peak = program_order.baseline(step).peak_with_workspace_bytes
    early = strategy("early_updates")(PlanningProblem(step, 0), Limits()).require().sequence
    budget = step.persistent_bytes + int(share * (peak - step.persistent_bytes))
    run = simulate(step, early, heuristic("dtr"), budget)
    check_sequence(made.graph, PlannedSequence.evaluate(step, run.sequence, "dtr"), None, made.registry)
    assert run.totals.peak_bytes <= budget


@pytest.mark.parametrize("length", [64, 144])
def test_a_chain_takes_linear_work_in_memory_of_the_order_of_the_root(length):
    """Theorem 3.1 of the paper, with a constant to spare."""
    step = chain_step(length)
    run = simulate(step, range(step.node_count), heuristic("dtr"), 100 * (2 * math.isqrt(length) + 6))
    assert run.totals.peak_bytes <= 100 * (2 * math.isqrt(length) + 6)
    assert run.totals.executions <= 4 * length


def test_deep_chains_do_not_end_at_the_depth_of_the_stack():
    step = chain_step(600)
    run = simulate(step, range(step.node_count), heuristic("evict_largest"), 100 * 300)
    assert run.totals.executions > step.node_count


def test_it_gives_up_where_it_only_thrashes_and_still_ends():
    step = chain_step(120)
    run = simulate(step, range(step.node_count), heuristic("evict_oldest"), 100 * 4)
    assert run.totals.gave_up
    assert set(run.sequence) == set(range(step.node_count))
    assert run.totals.executions <= 2 * SETTINGS.most_executions * step.node_count
    assert run.totals.peak_bytes > 400


def test_it_can_be_stopped():
    step = chain_step(10)
    with pytest.raises(SimulationStopped):
        simulate(step, range(20), heuristic("dtr"), 500, lambda: False)
