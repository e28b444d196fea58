from __future__ import annotations

import random
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from chain_play import chain_step
from neaptide.outcome import LimitGuard, Limits
from neaptide.planner.objective import PlanningProblem
from neaptide.planner.recompute.chain.plans import BackwardPart, carry_out
from neaptide.planner.recompute.units import forward_units
from neaptide.schedule.problem import compile_problem
from neaptide_corpus.training_steps import conv_step, toy_registry, transformer_step
from planner_problems import compiled, judge
from strategies import graphs
from together import together


def random_table(forward, draw):
    """Phases at random places that hold random units."""
    end = len(forward.order)
    places = sorted(draw.sample(range(forward.turning, end + 1), min(3, end + 1 - forward.turning)))
    bounds = [forward.turning, *places, end]
    units = sorted(forward.units)
    return [
        BackwardPart(first, last, frozenset(draw.sample(units, draw.randint(0, len(units)))))
        for first, last in pairwise(bounds)
    ]


@given(st.data(), st.integers(0, 2**32))
def test_any_table_is_carried_out_legally_on_any_graph(data, seed):
    graph = data.draw(graphs(min_nodes=1))
    workspace = {node.id: 7 for node in graph.nodes[::3]}
    step = compile_problem(graph, toy_registry(), workspace=workspace)
    forward = forward_units(step, range(step.node_count))
    table = random_table(forward, random.Random(seed))
    found = carry_out(PlanningProblem(step, 0), forward, table, LimitGuard(Limits()), "test")
    judge(graph, found, workspace)


@together("seed", range(6))
@together(
    "made", [transformer_step(layers=2, dropout=True), conv_step(blocks=3)], ids=["transformer", "conv"]
)
def test_any_table_is_carried_out_legally_on_training_steps(made, seed):
    step = compiled(made)
    forward = forward_units(step, range(step.node_count))
    table = random_table(forward, random.Random(seed))
    found = carry_out(PlanningProblem(step, 0), forward, table, LimitGuard(Limits()), "test")
    judge(made.graph, found, None, made.registry)
    assert dict.fromkeys(found.sequence).keys() == set(range(step.node_count))


def test_holding_everything_repeats_nothing():
    step = compiled(conv_step(blocks=3))
    forward = forward_units(step, range(step.node_count))
    table = [BackwardPart(forward.turning, len(forward.order), frozenset(forward.units))]
    problem = PlanningProblem(step, 0)
    found = carry_out(problem, forward, table, LimitGuard(Limits()), "test")
    assert found.sequence == tuple(range(step.node_count))


def test_nothing_held_into_one_phase_makes_each_unit_again_once():
    step = chain_step(6)
    forward = forward_units(step, range(step.node_count))
    table = [BackwardPart(6, 12, frozenset())]
    found = carry_out(PlanningProblem(step, 0), forward, table, LimitGuard(Limits()), "test")
    # The first backward node reads the end of the chain, so all of it runs in front of it.
    assert found.sequence == (0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)


def test_what_a_later_phase_is_to_find_is_made_in_the_one_before():
    step = chain_step(4)
    forward = forward_units(step, range(step.node_count))
    phases = [
        BackwardPart(4, 5, frozenset({3})),
        BackwardPart(5, 6, frozenset({2})),
        BackwardPart(6, 7, frozenset({1})),
        BackwardPart(7, 8, frozenset()),
    ]
    found = carry_out(PlanningProblem(step, 0), forward, phases, LimitGuard(Limits()), "test")
    assert found.sequence == (0, 1, 2, 3, 0, 1, 2, 4, 0, 1, 5, 0, 6, 0, 7)
