"""Blocks of the forward part, the program over them, tables of what is held, and the plans that they become."""

from __future__ import annotations

import logging
import math
import random
import threading
from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from neaptide.planner.recompute.chain.program import ChainProgram, Hold
from neaptide.planner.recompute.units import forward_units
from neaptide.schedule.problem import compile_problem
from neaptide_corpus.training_steps import conv_step, pooled_step, toy_registry, transformer_step
from neaptide_peers.strategies.revolve import least_runs
from planner.chain_play import chain_step, revolve_costs, rotor_costs
from planner.planner_problems import check_sequence, compiled
from support.drawn import graphs
from support.together import together


def blocks_of(step, most):
    return find_blocks(forward_units(step, range(step.node_count)), most)


def check(chain):
    """Blocks share out units and the backward, and what enters a block is what crosses into it."""
    forward, blocks = chain.forward, chain.blocks
    made = [u for block in blocks for u in block.units]
    assert made == [u.creator for u in forward.units.values() if not u.is_pinned]
    assert blocks[-1].first == forward.turning
    assert blocks[0].end == len(forward.order)
    for before, block in pairwise(blocks):
        assert before.first == block.end
        assert before.leaving == block.entering
    assert blocks[0].entering == ()
    assert blocks[-1].leaving == ()
    for block in blocks:
        at_hand = {*block.units, *block.entering}
        for unit in block.units:
            assert all(o in at_hand or forward.units[o].is_pinned for o in forward.units[unit].operands)
        for place in range(block.first, block.end):
            reads = forward.reads[place - forward.turning]
            assert all(u in at_hand or forward.units[u].is_pinned for u in reads)


@together("most", [4, 16, 200])
@together(
    "made",
    [transformer_step(layers=6), transformer_step(layers=6, dropout=True), conv_step(), pooled_step()],
    ids=["transformer", "dropout", "conv", "pooled"],
)
def test_blocks_of_training_steps(made, most):
    check(blocks_of(compiled(made), most))


@given(st.data(), st.sampled_from([2, 16, 100]))
def test_blocks_of_any_graph(data, most):
    graph = data.draw(graphs(min_nodes=1))
    check(blocks_of(compile_problem(graph, toy_registry()), most))


def test_equal_layers_are_found_once(caplog):
    with caplog.at_level(logging.INFO, logger="neaptide.planner.recompute.chain.blocks"):
        chain = blocks_of(compiled(transformer_step(layers=12)), 16)
    assert len(chain.blocks) >= 10
    assert chain.distinct <= 4
    assert f"{len(chain.blocks)} blocks, {chain.distinct} of them distinct" in caplog.text


def test_more_cuts_give_more_blocks():
    step = chain_step(60)
    few, many = blocks_of(step, 5), blocks_of(step, 30)
    assert 3 <= len(few.blocks) <= 8
    assert len(few.blocks) < len(many.blocks) <= 45


def test_blocks_of_other_sizes_or_times_are_not_equal():
    step = compiled(transformer_step(layers=4, tokens=64))
    other = compiled(transformer_step(layers=4, tokens=128))
    assert blocks_of(step, 8).distinct == blocks_of(other, 8).distinct
    chain = blocks_of(compiled(conv_step(blocks=6)), 8)
    assert 1 < chain.distinct < len(chain.blocks)


@together("length", [1, 2, 5, 9, 14])
@together("places", [1, 2, 3, 5])
def test_without_tapes_it_is_the_binomial_optimum(length, places):
    # The input has a place; the state that runs forward has none there, but one in the program.
    program = ChainProgram(revolve_costs(length), places, slots=places)
    # All blocks but the last run forward a first time, which costs nothing in the program.
    assert program.seconds(places) == least_runs(length, places) - (length - 1)


def published(forward_s, tape, entering, room):
    """Least seconds run again by the recurrence of rotor, over all states, in whole bytes."""

    @cache
    def least(m, a, b):
        is_first = b == len(forward_s) - 1
        run = 0.0 if is_first else forward_s[a]
        best = math.inf
        if a == b:
            return run if tape[a] <= m else best
        if tape[a] <= m:
            best = run + least(m - tape[a], a + 1, b)
        for cut in range(a + 1, b + 1):
            if entering[cut] <= m:
                runs = 0.0 if is_first else sum(forward_s[a:cut])
                best = min(best, runs + least(m - entering[cut], cut, b) + least(m, a, cut - 1))
        return best

    return least(room, 0, len(forward_s) - 1)


@together("seed", range(20))
def test_with_one_option_it_is_the_published_recurrence(seed):
    draw = random.Random(seed)
    length = draw.randint(2, 7)
    entering = [0] + [draw.randint(1, 4) for _ in range(length - 1)]
    tape = [draw.randint(1, 6) + (entering[i + 1] if i + 1 < length else 0) for i in range(length)]
    forward_s = [float(draw.randint(1, 9)) for _ in range(length)]
    most = sum(tape)
    program = ChainProgram(rotor_costs(forward_s, tape, entering), most, slots=most)
    for room in range(most + 1):
        assert program.seconds(room) == published(tuple(forward_s), tuple(tape), tuple(entering), room)


@together("seed", range(10))
def test_fewer_slots_never_promise_more(seed):
    draw = random.Random(seed)
    length = 6
    entering = [0] + [draw.randint(10, 40) for _ in range(length - 1)]
    tape = [draw.randint(30, 90) + (entering[i + 1] if i + 1 < length else 0) for i in range(length)]
    costs = rotor_costs([float(draw.randint(1, 9)) for _ in range(length)], tape, entering)
    most = sum(tape)
    exact, coarse = ChainProgram(costs, most, slots=most), ChainProgram(costs, most, slots=40)
    for room in range(0, most + 1, 17):
        assert coarse.seconds(room) >= exact.seconds(room)


def test_a_plan_of_much_room_holds_every_tape_and_one_of_little_cuts():
    length = 8
    costs = rotor_costs([1.0] * length, [3] * length, [0] + [1] * (length - 1))
    program = ChainProgram(costs, 3 * length, slots=3 * length)
    rich = program.plan(3 * length)
    assert [hold.block for hold in rich if hold.option == 0] == list(range(length))
    assert all(hold.first == length - 1 and hold.last == hold.block for hold in rich)
    poor = program.plan(6)
    assert {hold.option for hold in poor if hold.first == length - 1} > {None}
    # What is made again for a backward is there only for those after it.
    assert any(hold.first < length - 1 for hold in poor)
    assert program.plan(2) is None
    assert program.seconds(2) == math.inf
    assert program.seconds(-1) == math.inf


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
    check_sequence(graph, found, workspace)


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
