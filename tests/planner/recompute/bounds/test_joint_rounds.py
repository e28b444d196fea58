"""Rounds lift the bound of their first steps by what their answers break, and stay below the optimum."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from example_counts import examples
from neaptide.outcome import LimitGuard, Limits
from neaptide.planner.recompute.bounds.joint_lifetimes import joint_profile
from neaptide.planner.recompute.bounds.joint_program import JointProgram, JointSolution
from neaptide.planner.recompute.bounds.joint_rounds import (
    JointAnswer,
    JointRounds,
    broken_windows,
    rounded_rows,
    worst_steps,
)
from neaptide.planner.recompute.bounds.step_tables import StepTables
from neaptide.planner.strategies import program_order
from neaptide.schedule.recompute_form import InstanceNode, from_nodes
from planner_problems import instance, least_seconds, random_chain, random_instance
from together import together


@given(st.integers(0, 10**6), st.integers(4, 7), st.booleans(), st.floats(0.4, 1.0), st.data())
@settings(max_examples=examples(200), deadline=None)
def test_no_sequence_is_faster(seed, count, chain, share, data):
    step = random_chain(seed, (count + 1) // 2) if chain else random_instance(seed, count)
    budget = int(share * program_order.baseline(step).peak_with_workspace_bytes)
    first = data.draw(st.sets(st.integers(0, step.node_count - 1), min_size=1, max_size=3))
    best = least_seconds(step, budget, most=3)
    rounds = JointRounds(StepTables(step, None), budget, None)
    rounds.run(first)
    if best is None:
        return
    assert not rounds.is_infeasible
    # Before the first node nothing is held.
    assert rounds.best is not None or first == {0}
    bound = 0.0 if rounds.best is None else rounds.best.solution.bound
    assert bound <= best - step.baseline_seconds + 1e-6


@together("family", ["residual", "skips", "layered"])
def test_the_bound_rises_from_that_of_the_best_single_step(family):
    tables = StepTables(instance(family, seed=1), None)
    budget = int(0.5 * tables.profile.max())
    first = [int(tables.profile.argmax())]
    alone = JointProgram(tables, first, budget)
    answer = alone.relax()
    added = worst_steps(tables, budget, JointAnswer(alone, answer), 5)
    assert all(tables.profile[position] > budget for position in added)
    assert not {*added} & {*first}
    rounds = JointRounds(tables, budget, None)
    rounds.run(first)
    assert answer.bound < rounds.best.solution.bound


def test_limits_end_the_rounds():
    step = random_chain(5, 8)
    tables = StepTables(step, None)
    late = JointRounds(tables, int(0.7 * tables.profile.max()), LimitGuard(Limits(time_s=0.0)))
    refuted = JointRounds(tables, 0, None)
    for rounds in (late, refuted):
        rounds.run([8])
        assert rounds.best is None
    assert (late.is_infeasible, refuted.is_infeasible) == (False, True)


def case(name):
    step = random_chain(7, 12) if name == "chain" else instance(name, seed=1)
    tables = StepTables(step, None)
    budget = int(0.75 * tables.profile.max())
    above = np.flatnonzero(tables.profile > budget)
    positions = sorted(set(above[np.linspace(0, len(above) - 1, 6).astype(int)].tolist()))
    return tables, positions, budget


@together("name", ["chain", "transformer", "skips", "layered"])
def test_adding_what_is_broken_reaches_the_bound_of_all_windows(name):
    tables, positions, budget = case(name)
    every = JointProgram(tables, positions, budget)
    most = every.relax()
    assert not most.is_infeasible
    assert broken_windows(tables, positions, most, 99) == []
    windows = set()
    for _ in range(len(every.windows) + 1):
        program = JointProgram(tables, positions, budget, windows=windows)
        answer = program.relax()
        broken = broken_windows(tables, positions, answer, 2)
        assert set(broken) <= set(every.windows) - windows
        if not broken:
            break
        windows.update(broken)
    assert answer.bound == pytest.approx(most.bound, rel=1e-4)
    # Those that bind are enough.
    fewer = JointProgram(tables, positions, budget, windows=program.binding_windows())
    assert len(fewer.windows) <= len(windows)
    assert fewer.relax().bound == pytest.approx(answer.bound, rel=1e-4)


def tables_of(sizes, needed=0):
    nodes = [InstanceNode(f"n{k}", size, []) for k, size in enumerate(sizes)]
    nodes.append(InstanceNode("last", needed, list(range(len(sizes))), out=True))
    return StepTables(from_nodes(nodes), None)


@given(
    st.lists(
        st.tuples(st.one_of(st.integers(0, 30), st.integers(1, 2**40)), st.floats(0.0, 1.0)),
        min_size=1,
        max_size=8,
    ),
    st.floats(0.0, 1.0),
    st.integers(0, 5),
)
@settings(max_examples=examples(400), deadline=None)
def test_no_choice_that_fits_is_cut_off(items, share, needed):
    sizes = [size for size, _ in items]
    tables = tables_of(sizes, needed)
    position = len(sizes)
    budget = int(share * sum(sizes)) + needed
    held = np.array([part for _, part in items] + [0.0])
    rows = rounded_rows(tables, position, budget, held, 50)
    choices = np.array(list(product((0.0, 1.0), repeat=len(sizes))))
    fitting = choices[choices @ np.array(sizes, dtype=np.float64) <= budget - needed]
    for row in rows:
        assert row.position == position
        slack = 1e-12 * max(abs(row.upper), float(np.abs(row.nbytes).sum()))
        assert row.nbytes @ held[row.storages] > row.upper
        assert (fitting @ row.nbytes <= row.upper + slack).all()


def test_of_equal_sizes_as_many_are_held_as_fit_whole():
    tables = tables_of([10, 10, 10])
    held = np.array([0.9, 0.8, 0.8, 0.0])
    row = rounded_rows(tables, 3, 25, held, 1)[0]
    # Two of three: in multiples of one storage's bytes.
    assert row.nbytes.sum() - row.upper > 0.0
    for choice, fits in (((1, 1, 0), True), ((1, 1, 1), False)):
        assert (row.nbytes @ np.array(choice, dtype=np.float64) <= row.upper + 1e-6) == fits


def test_an_answer_in_whole_numbers_asks_for_no_row():
    tables = tables_of([3, 5, 8])
    assert rounded_rows(tables, 3, 9, np.array([0.0, 0.0, 1.0, 0.0]), 9) == []


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
