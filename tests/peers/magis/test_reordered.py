"""Ordering anew: blocks as good as brute force, never above what was given, legal for the checker, and kept to around the change."""

from __future__ import annotations

import os
import random
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neaptide.analysis.legality.schedule import check_schedule
from neaptide.analysis.profile_bytes import memory_profile
from neaptide.errors import VerifyError
from neaptide.ir.schedule import Schedule
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.order.evaluate import check_order, evaluate_order
from neaptide.schedule.order.from_step import step_order_problem
from neaptide.schedule.problem import compile_problem
from neaptide_corpus.random_graphs import random_graph
from neaptide_corpus.training_steps import toy_registry
from neaptide_peers.magis.executions import executions_problem
from neaptide_peers.magis.reordered import (
    LARGEST_BLOCK,
    LONGEST_EXTENSION,
    Reordering,
    beside,
    blocks,
    components,
    interval,
)
from neaptide_peers.orders.windows import closures
from schedule.order.order_problems import random_problem
from schedule.order.small_orders import best_peak, from_edges
from support.drawn import graphs, node_orders


def workspace_of(graph):
    return {node.id: 7 for node in graph.nodes[::3]}


def checked(graph, sequence):
    """Bytes by the evaluator that shares no code with what orders; the sequence must be legal."""
    schedule = Schedule.from_nodes(graph, sequence)
    check_schedule(graph, schedule, toy_registry())
    return memory_profile(graph, schedule, workspace=workspace_of(graph)).peak_with_workspace_bytes


@st.composite
def sequences(draw, graph):
    """A legal sequence with repetitions, wherever the checker allows them."""
    sequence = list(draw(node_orders(graph)))
    for node in draw(st.lists(st.sampled_from(sequence), max_size=10)) if sequence else []:
        place = draw(st.integers(sequence.index(node) + 1, len(sequence)))
        longer = [*sequence[:place], node, *sequence[place:]]
        try:
            checked(graph, longer)
        except VerifyError:
            continue
        sequence = longer
    return tuple(sequence)


@st.composite
def cases(draw):
    """A graph with views, writes in place and draws, as integers, and a legal sequence with repetitions."""
    graph = draw(graphs(min_nodes=2))
    step = compile_problem(graph, toy_registry(), workspace=workspace_of(graph))
    return graph, step, draw(sequences(graph))


@given(cases(), st.randoms(use_true_random=False))
def test_every_order_of_the_executions_is_legal_and_takes_what_the_judge_counts(case, draw):
    graph, step, sequence = case
    problem = executions_problem(step, sequence)
    assert evaluate_order(problem, range(len(sequence))).peak_bytes == checked(graph, sequence)
    waiting = [set(before) for before in problem.predecessors]
    order, left = [], set(range(len(sequence)))
    while left:
        chosen = draw.choice(sorted(op for op in left if waiting[op] <= set(order)))
        order.append(chosen)
        left.remove(chosen)
    other = [sequence[op] for op in order]
    assert evaluate_order(problem, order).peak_bytes == checked(graph, other)


@given(st.data())
def test_without_repetitions_it_is_the_problem_of_orders(data):
    graph = data.draw(graphs(min_nodes=1))
    step = compile_problem(graph, toy_registry(), workspace=workspace_of(graph))
    order = data.draw(node_orders(graph))
    one, other = executions_problem(step, order), step_order_problem(step, order)
    assert closures(one) == closures(other)


@given(cases(), st.data())
def test_what_is_ordered_anew_is_legal_and_never_higher(case, data):
    graph, step, sequence = case
    changed = data.draw(st.sets(st.integers(0, len(sequence) - 1)))
    found = Reordering().sequence(step, sequence, changed)
    assert sorted(found) == sorted(sequence)
    before = checked(graph, sequence)
    assert checked(graph, found) == Evaluator(step, found).peak <= before
    if found != sequence:
        assert checked(graph, found) < before
        problem = executions_problem(step, sequence)
        start, end = interval(beside(*closures(problem)), min(changed), max(changed) + 1)
        assert (found[:start], found[end:]) == (sequence[:start], sequence[end:])


@pytest.mark.parametrize("seed", range(30))
def test_the_order_of_a_block_has_the_least_peak(seed):
    """A graph that is one block: as low as the best of all its orders."""
    draw = random.Random(seed)
    problem = random_problem(draw.getrandbits(32), draw.randint(2, 7), mutation=True)
    before, _ = closures(problem)
    everything = list(range(problem.op_count))
    order = Reordering()._block(problem, everything, before)
    check_order(problem, order)
    assert evaluate_order(problem, order).peak_bytes == best_peak(problem)


@pytest.mark.parametrize("seed", range(30))
def test_blocks_follow_each_other_and_hold_a_component(seed):
    draw = random.Random(seed)
    problem = random_problem(draw.getrandbits(32), draw.randint(2, 60), mutation=True)
    before, after = closures(problem)
    seen = []
    for component in components(problem):
        found = blocks(component, before, after)
        assert [op for block in found for op in block] == component
        assert all(1 <= len(block) <= LARGEST_BLOCK for block in found)
        for block in found:
            for op in block[:-1]:  # a block goes on after none that is as good as alone
                left_over = set(component) - {op} - members(before[op] | after[op])
                assert len(left_over) > 1
        seen += component
    assert sorted(seen) == list(range(problem.op_count))
    check_order(problem, Reordering().order(problem))


def members(bits):
    return {op for op in range(bits.bit_length()) if bits >> op & 1}


def test_what_is_not_connected_is_interleaved_by_what_it_holds():
    """Two chains that each swell and leave little: one after the other, and the one that swells less after."""
    problem = from_edges([1, 9, 1, 2, 8, 2], [(0, 1), (1, 2), (3, 4), (4, 5)])
    given_peak = evaluate_order(problem, (3, 0, 1, 4, 2, 5)).peak_bytes
    order = Reordering().order(problem)
    assert evaluate_order(problem, order).peak_bytes == best_peak(problem) < given_peak


def test_the_stretch_is_extended_as_the_paper_says():
    falling = list(range(30, 0, -1))
    # Few ops, and many beside the next: the stretch stays as it is.
    assert interval([9, 9, 9, 8, 7], 2, 3) == (2, 3)
    # Fewer than 4 beside the next: as long as the number falls strictly.
    assert interval([2, 1, 2, 3, 5, 3, 3, 1], 4, 5) == (1, 6)
    # More than 10 ops: whatever runs beside them; no further than 20 positions.
    assert interval([50] * 11 + falling, 0, 11) == (0, 11 + LONGEST_EXTENSION)
    assert interval(falling[::-1] + [50] * 11, 30, 41) == (30 - LONGEST_EXTENSION, 41)
    # What has come in at one end counts at the other.
    assert interval([60, *[50] * 8, 3, 2, 1, 0, 0], 1, 9) == (1, 13)


def test_beside_counts_what_may_run_before_or_behind():
    """A diamond, and one op that nothing is connected with."""
    problem = from_edges([1] * 5, [(0, 1), (0, 2), (1, 3), (2, 3)])
    assert beside(*closures(problem)) == [1, 2, 2, 1, 4]
    assert components(problem) == [[0, 1, 2, 3], [4]]


SCRIPT = """
from neaptide_corpus.random_graphs import random_graph
from neaptide_corpus.training_steps import toy_registry
from neaptide_peers.magis.reordered import Reordering
from neaptide.schedule.problem import compile_problem
for seed in range(30):
    step = compile_problem(random_graph(seed, 40), toy_registry())
    print(Reordering().sequence(step, range(40), range(40)))
"""


def test_the_same_in_every_process():
    answers = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(answers) == 1


def test_it_lowers_peaks_of_random_graphs():
    """Otherwise the tests above would hold for an order that keeps everything."""
    lowered = 0
    for seed in range(30):
        step = compile_problem(random_graph(seed, 40), toy_registry())
        found = Reordering().sequence(step, range(40), range(40))
        lowered += Evaluator(step, found).peak < Evaluator(step).peak
    assert lowered > 10


@settings(max_examples=20)
@given(cases())
def test_nothing_changed_keeps_the_sequence(case):
    _, step, sequence = case
    assert Reordering().sequence(step, sequence, ()) == sequence
