from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from example_counts import examples
from neaptide.analysis.legality import check_schedule
from neaptide.errors import NeaptideError
from neaptide.ir.schedule import Schedule
from neaptide.planner.objective import PlannedSequence
from neaptide.planner.recompute.bounds.certificate import recompute_bound
from neaptide.planner.recompute.bounds.joint_lifetimes import joint_profile
from neaptide.planner.recompute.bounds.joint_program import JointProgram, JointSolution
from neaptide.planner.recompute.bounds.step_tables import StepTables
from neaptide.planner.strategies import program_order
from neaptide.schedule.problem import compile_problem
from neaptide.schedule.recompute_form import InstanceNode, from_nodes
from neaptide_corpus.training_steps import toy_registry
from planner_problems import least_seconds, random_chain, random_instance
from strategies import graphs
from together import together

ANY = 1e9


def solved(step, positions, budget):
    program = JointProgram(StepTables(step, None), positions, budget, to_end=positions)
    return program, program.relax()


def share_of_peak(step, share):
    return int(share * program_order.baseline(step).peak_with_workspace_bytes)


@given(st.integers(0, 10**6), st.integers(4, 6), st.booleans(), st.floats(0.4, 1.0), st.data())
@settings(max_examples=examples(120), deadline=None)
def test_several_steps_together_stay_below_the_optimum_and_above_each_alone(seed, count, chain, share, data):
    step = random_chain(seed, count // 2 + 1) if chain else random_instance(seed, count)
    budget = share_of_peak(step, share)
    places = st.lists(st.integers(0, step.node_count - 1), min_size=1, max_size=4, unique=True)
    positions = sorted(data.draw(places))
    best = least_seconds(step, budget, most=3)
    program, relaxed = solved(step, positions, budget)
    if best is None:
        return
    extra = best - step.baseline_seconds
    whole = program.solve_whole(ANY, nodes=1000)
    assert not relaxed.is_infeasible
    assert relaxed.bound <= whole.bound + 1e-6 <= extra + 2e-6
    for position in positions:
        assert solved(step, [position], budget)[1].bound <= relaxed.bound + 1e-6


@given(st.integers(0, 10**6), st.integers(4, 14), st.integers(0, 10**6), st.data())
@settings(max_examples=examples(300), deadline=None)
def test_every_legal_sequence_obeys_the_program_within_its_own_peak(seed, count, draws, data):
    # Views, in-place writers, several outputs, random numbers and refusals; what is not run again is forbidden to.
    graph = data.draw(graphs(min_nodes=count, max_nodes=count))
    step = compile_problem(graph, toy_registry())
    sequence = with_repetitions(graph, step, random.Random(draws))
    plan = PlannedSequence.evaluate(step, sequence, "")
    tables = StepTables(step, sequence)
    places = st.lists(st.integers(0, count - 1), min_size=1, max_size=5, unique=True)
    positions = sorted(data.draw(places))
    budget = plan.peak_with_workspace_bytes
    program = JointProgram(tables, positions, budget)
    answer = program.relax()
    assert not answer.is_infeasible
    if not answer.held:
        return
    # By window, what runs again in it.
    windows = [set() for _ in range(len(positions) + 1)]
    seen, window = set(), 0
    for node in sequence:
        if node in seen:
            windows[window].add(node)
        else:
            window += len(seen) in positions
        seen.add(node)
    high = program._program._high
    for again, ran in zip(program._again, windows[1:], strict=True):
        idle = [node for node in range(step.node_count) if node not in ran and again[node] >= 0]
        high[again[idle]] = 0.0
    seconds = sum(step.repeat_seconds[node] for ran in windows[1:] for node in ran)
    kept = program.relax()
    assert not kept.is_infeasible
    assert kept.bound <= seconds + 1e-6
    assert recompute_bound(step, budget, sequence=sequence).seconds <= plan.seconds * (1 + 1e-9)
    # An answer in whole numbers, not only a bound.
    assert not program.size or program.solve_whole(ANY, nodes=1000).held


def with_repetitions(graph, step, draw):
    """Program order with a few nodes run again, wherever that is legal."""
    sequence = list(range(step.node_count))
    for _ in range(draw.randint(0, 12)):
        node = draw.choice(sequence)
        place = draw.randint(sequence.index(node) + 1, len(sequence))
        longer = [*sequence[:place], node, *sequence[place:]]
        try:
            check_schedule(graph, Schedule.from_nodes(graph, longer), toy_registry())
        except NeaptideError:
            continue
        sequence = longer
    return tuple(sequence)


@together("seed", range(12))
def test_a_level_cuts_the_bound_and_nothing_else(seed):
    step = random_chain(seed, 6)
    positions = [6, 8]
    program, relaxed = solved(step, positions, share_of_peak(step, 0.75))
    if relaxed.is_infeasible:
        return
    whole = program.solve_whole(ANY, nodes=1000)
    for factor in (0.5, 0.99, 1.01, 1.5):
        level = factor * whole.bound
        cut = program.solve_whole(level, nodes=1000)
        assert cut.bound == pytest.approx(max(min(level, whole.bound), relaxed.bound), rel=1e-3)


def test_two_steps_ask_for_more_than_the_dearer_one():
    # Either step has room for one of the two storages that are used behind it; what is held at the first is
    # what the second must drop.
    nodes = [
        InstanceNode("a", 4, [], seconds=3.0),
        InstanceNode("b", 4, [], seconds=3.0),
        InstanceNode("wide", 6, [], seconds=1.0),
        InstanceNode("use a", 1, [0], seconds=1.0),
        InstanceNode("use b", 1, [1], seconds=1.0),
        InstanceNode("wide again", 6, [], seconds=1.0),
        InstanceNode("last", 1, [0, 1], seconds=1.0, out=True),
    ]
    step = from_nodes(nodes)
    budget = 10
    alone = [solved(step, [position], budget)[1].bound for position in (2, 5)]
    both = solved(step, [2, 5], budget)[1]
    assert alone == pytest.approx([3.0, 3.0], abs=1e-6)
    assert both.bound == pytest.approx(6.0, abs=1e-6)
    assert least_seconds(step, budget, most=3) == pytest.approx(step.baseline_seconds + 6.0)
    assert min(both.multipliers) >= 0.0


def test_a_step_without_room_for_its_operands_is_infeasible():
    draw = random.Random(0)
    nodes = [
        InstanceNode(f"n{i}", 5, [i - 1] if i else [], seconds=draw.random(), out=i == 3) for i in range(4)
    ]
    assert solved(from_nodes(nodes), [2], 9)[1].is_infeasible
    assert not solved(from_nodes(nodes), [2], 10)[1].is_infeasible


@given(st.integers(0, 10**6), st.integers(2, 12), st.data())
@settings(max_examples=examples(120), deadline=None)
def test_what_is_held_until_its_last_use_has_the_bytes_of_the_order(seed, count, data):
    tables = StepTables(random_instance(seed, count), None)
    places = st.lists(st.integers(0, count - 1), min_size=1, max_size=4, unique=True)
    positions = sorted(data.draw(places))
    held = tuple(
        (tables.made_before(p) & (tables.used_within(p, count) | tables.is_output)).astype(np.float64)
        for p in positions
    )
    again = (np.zeros(count),) * len(positions)
    solution = JointSolution(is_infeasible=False, bound=0.0, held=held, again=again)
    assert joint_profile(tables, positions, solution) == pytest.approx(tables.profile)


@given(st.integers(0, 10**6), st.integers(3, 8), st.floats(0.5, 0.95), st.data())
@settings(max_examples=examples(60), deadline=None)
def test_answers_fit_at_the_steps_of_their_program(seed, layers, share, data):
    tables = StepTables(random_chain(seed, layers), None)
    budget = int(share * tables.profile.max())
    places = st.lists(st.integers(1, 2 * layers - 1), min_size=1, max_size=4, unique=True)
    positions = sorted(data.draw(places))
    solution = JointProgram(tables, positions, budget).relax()
    if not solution.is_infeasible:
        profile = joint_profile(tables, positions, solution)
        assert (profile[positions] <= budget * (1 + 1e-6)).all()
