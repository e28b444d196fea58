from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neaptide.planner.recompute.joint_lifetimes import joint_lifetimes
from neaptide.planner.recompute.joint_program import JointProgram
from neaptide.planner.recompute.step_tables import StepTables
from neaptide.planner.strategies import program_order
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.recompute_form import InstanceNode, from_nodes
from planner_problems import least_seconds, random_chain, random_instance

ANY = 1e9


def solved(step, positions, budget):
    program = JointProgram(StepTables(step, None), positions, budget)
    return program, program.relax()


def share_of_peak(step, share):
    return int(share * program_order.baseline(step).peak_with_workspace_bytes)


@given(st.integers(0, 10**6), st.integers(4, 6), st.booleans(), st.floats(0.4, 1.0), st.data())
@settings(max_examples=40, deadline=None)
def test_several_steps_together_stay_below_the_optimum_and_above_each_alone(seed, count, chain, share, data):
    step = random_chain(seed, count // 2 + 1) if chain else random_instance(seed, count)
    budget = share_of_peak(step, share)
    places = st.lists(st.integers(0, step.node_count - 1), min_size=1, max_size=3, unique=True)
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


@pytest.mark.parametrize("seed", range(12))
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


def sequence_of(step, repetitions):
    """Repetitions in blocks directly before the first execution that they stand at."""
    blocks = {}
    for repetition in repetitions:
        blocks.setdefault(repetition.position, []).append(repetition.node)
    nodes = []
    for position in range(step.node_count + 1):
        nodes += sorted(blocks.get(position, []))
        nodes += [position] if position < step.node_count else []
    return nodes


@given(st.integers(0, 10**6), st.integers(3, 8), st.floats(0.5, 0.95), st.data())
@settings(max_examples=30, deadline=None)
def test_a_whole_answer_carried_out_is_legal_and_fits_at_its_steps(seed, layers, share, data):
    step = random_chain(seed, layers)
    budget = share_of_peak(step, share)
    places = st.lists(st.integers(1, step.node_count - 1), min_size=1, max_size=3, unique=True)
    positions = sorted(data.draw(places))
    program, relaxed = solved(step, positions, budget)
    if relaxed.is_infeasible:
        return
    whole = program.solve_whole(ANY, nodes=1000)
    if not whole.held:
        return
    found = joint_lifetimes(StepTables(step, None), positions, whole)
    # The evaluator refuses a repetition whose operands are not there.
    evaluator = Evaluator(step, sequence_of(step, found.repetitions))
    at = evaluator.bytes[evaluator.position[: step.node_count]]
    assert (at <= found.profile + 1e-6).all()
    assert (at[positions] <= budget).all()
    seconds = sum(step.repeat_seconds[r.node] for r in found.repetitions)
    assert seconds <= sum(float(a @ np.array(step.repeat_seconds)) for a in whole.again) + 1e-9


def test_without_a_repetition_the_lifetimes_are_those_of_the_program():
    step = random_instance(3, 9)
    tables = StepTables(step, None)
    program, relaxed = solved(step, [4, 6], int(tables.profile.max()))
    assert relaxed.bound == 0.0
    whole = program.solve_whole(1.0, nodes=10)
    found = joint_lifetimes(tables, [4, 6], whole)
    if not found.repetitions:
        assert (found.profile >= tables.profile - 1e-9).all()


def test_a_step_without_room_for_its_operands_is_infeasible():
    draw = random.Random(0)
    nodes = [
        InstanceNode(f"n{i}", 5, [i - 1] if i else [], seconds=draw.random(), out=i == 3) for i in range(4)
    ]
    assert solved(from_nodes(nodes), [2], 9)[1].is_infeasible
    assert not solved(from_nodes(nodes), [2], 10)[1].is_infeasible


def test_multipliers_that_prove_nothing_fix_nothing():
    step = random_chain(3, 6)
    program, _ = solved(step, [6], share_of_peak(step, 0.75))
    right = program.solve_whole(ANY, nodes=1000)
    assert right.bound > 0.0
    # Far too large: their value is below zero, and so must be what is left below a level.
    program._multipliers = np.full(len(program._bounds), 50.0)
    program._multipliers[program._byte_rows[0]] = 1e6
    assert program._dual_bound()[0] < 0.0
    assert program.solve_whole(2.0 * right.bound, nodes=1000).bound <= right.bound + 1e-3
