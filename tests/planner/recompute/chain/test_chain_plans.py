"""Options of blocks, tables of what is held, and the plans that they become."""

from __future__ import annotations

import logging
import random
import threading
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chain_play import chain_step
from neaptide.outcome import LimitGuard, Limits
from neaptide.planner.objective import PlanningProblem
from neaptide.planner.recompute.chain.blocks import BlockChain, find_blocks
from neaptide.planner.recompute.chain.options import chain_costs
from neaptide.planner.recompute.chain.plans import (
    BackwardPart,
    NominalBudgets,
    carry_out,
    chain_of,
    costs_of,
    nothing_held,
    parts_of,
    table_of,
)
from neaptide.planner.recompute.chain.program import Hold
from neaptide.planner.recompute.units import forward_units
from neaptide.schedule.problem import compile_problem
from neaptide_corpus.training_steps import conv_step, toy_registry, transformer_step
from planner_problems import compiled, judge
from strategies import graphs
from together import together


def carried_out(step, forward, table):
    return carry_out(PlanningProblem(step, 0), forward, table, LimitGuard(Limits()), "test")


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
    found = carried_out(step, forward, table)
    judge(graph, found, workspace)


def test_nothing_held_into_one_phase_makes_each_unit_again_once():
    step = chain_step(6)
    forward = forward_units(step, range(step.node_count))
    table = [BackwardPart(6, 12, frozenset())]
    found = carried_out(step, forward, table)
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
    found = carried_out(step, forward, phases)
    assert found.sequence == (0, 1, 2, 3, 0, 1, 2, 4, 0, 1, 5, 0, 6, 0, 7)


def test_holds_become_what_the_phases_find():
    step = chain_step(4)
    chain = find_blocks(forward_units(step, range(step.node_count)), 16)
    costs = chain_costs(chain)
    table = table_of(chain, costs, [Hold(2, None, 3, 2), Hold(3, 0, 3, 3)])
    # Phases run from the last block to the first.
    assert [phase.first for phase in table] == sorted(phase.first for phase in table)
    assert table[0].held >= {1}
    assert table[1].held == {1}
    assert table[2].held == table[3].held == frozenset()


STEPS = [transformer_step(layers=8), conv_step(blocks=8)]


def chain_of_step(step, most=12):
    return find_blocks(forward_units(step, range(step.node_count)), most)


@together("made", STEPS, ids=["transformer", "conv"])
def test_more_bytes_held_is_less_time_and_the_extremes_are_there(made):
    step = compiled(made)
    chain = chain_of_step(step)
    costs = chain_costs(chain)
    for block, options in zip(chain.blocks, costs.options, strict=True):
        most, least = options[0], options[-1]
        assert most.backward_s == 0.0
        assert most.kept <= block.reads
        assert not least.kept
        nbytes = [option.nbytes for option in options]
        seconds = [option.backward_s for option in options]
        assert nbytes == sorted(nbytes, reverse=True)
        assert seconds == sorted(seconds)


@together("made", STEPS, ids=["transformer", "conv"])
def test_charges_of_one_option_are_those_of_the_whole_step(made):
    """All blocks but one hold everything: the seconds of the option are what the plan takes longer."""
    step = compiled(made)
    chain = chain_of_step(step)
    costs = chain_costs(chain)
    index = len(chain.blocks) // 2
    for option in costs.options[index]:
        held = [
            {
                unit
                for other, block in enumerate(chain.blocks[: phase + 1])
                for unit in (option.kept if other == index else block.reads)
            }
            | {unit for block in chain.blocks[: phase + 2] for unit in block.entering}
            for phase in range(len(chain.blocks))
        ]
        found = carried_out(step, chain.forward, parts_of(chain, held))
        assert found.seconds - step.baseline_seconds == pytest.approx(option.backward_s)


def test_distinct_blocks_are_solved_once(caplog):
    step = compiled(transformer_step(layers=10))
    chain = chain_of_step(step, 16)
    with caplog.at_level(logging.INFO, logger="neaptide.planner.recompute.chain.options"):
        costs = chain_costs(chain)
    assert f"options of {chain.distinct} of {len(chain.blocks)} blocks" in caplog.text
    kind = max(set(chain.kinds), key=chain.kinds.count)
    same = [costs.options[i] for i, k in enumerate(chain.kinds) if k == kind]
    assert len({tuple(o.nbytes for o in options) for options in same}) == 1
    assert len({tuple(o.kept for o in options) for options in same}) == len(same)


def test_the_number_of_options_is_limited():
    step = compiled(transformer_step(layers=8))
    chain = chain_of_step(step, 3)
    assert max(len(o) for o in chain_costs(chain).options) > 4
    assert max(len(o) for o in chain_costs(chain, most=4).options) == 4


def test_blocks_are_solved_once_for_all_budgets_and_strategies_of_a_search(caplog):
    step = compiled(transformer_step(layers=10))
    problem = PlanningProblem(step, step.lower_bound_bytes)
    with caplog.at_level(logging.INFO, logger="neaptide.planner.recompute"):
        for budget in (problem.budget_bytes, 2 * problem.budget_bytes):
            same = replace(problem, budget_bytes=budget)
            chain = chain_of(same, 8)
            assert isinstance(chain, BlockChain)
            assert costs_of(same, chain) is costs_of(same, chain)
    assert caplog.text.count("options of") == 4
    assert caplog.text.count("taken from an earlier search") == 3


def nominal_of(step, budget, most=16, interrupt=None):
    problem = PlanningProblem(step, budget)
    return NominalBudgets(problem, chain_of(problem, most), LimitGuard(Limits(), interrupt), "test")


@together("share", [1.0, 1.2, 1.5])
@together("units", [5, 7, 10, 14])
def test_the_program_promises_no_less_than_a_chain_needs(units, share):
    step = chain_step(16)
    nominal = nominal_of(step, 100 * units)
    found = nominal.plan(share)
    budget = int(share * 100 * units)
    promised = nominal.program.seconds(budget)
    if found is None:
        assert promised == float("inf")
    else:
        assert found.peak_bytes <= budget
        assert found.seconds <= step.baseline_seconds + promised + 1e-9


def test_nothing_is_carried_out_once_time_is_up():
    stop = threading.Event()
    nominal = nominal_of(chain_step(8), 500, interrupt=stop)
    stop.set()
    assert nominal.plan(1.0) is None


def test_a_plan_that_holds_nothing_is_not_made_where_it_would_be_too_long():
    step = chain_step(28, size=1)
    order = tuple(range(step.node_count))
    assert nothing_held(step, order, 27 * 28 // 2, LimitGuard(Limits())) is None
    found = nothing_held(step, order, 28 * 29 // 2, LimitGuard(Limits()))
    assert found is not None
    assert found.peak_bytes == step.lower_bound_bytes == 4
    assert nothing_held(step, order, 28 * 29 // 2, LimitGuard(Limits(work=100))) is None
