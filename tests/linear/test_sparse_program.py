"""Small programs with known optima, what multipliers prove, and rows however they are added."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from neaptide.linear.rows import SparseRows, one_row
from neaptide.linear.solver import solve_fractions, solve_mixed
from neaptide.linear.sparse_program import SparseProgram
from neaptide.linear.tolerances import PROOF_GAP
from support.drawn import examples


def knapsack(gains, sizes, room):
    """What is left out costs; what is in has a size."""
    program = SparseProgram()
    left_out = program.variables(np.ones(len(gains), dtype=bool))
    program.add_row(left_out, -np.array(sizes, dtype=np.float64), room - float(sum(sizes)))
    program.close(np.array(gains, dtype=np.float64), np.zeros(len(gains)), np.ones(len(gains)))
    return program


def optimum(gains, sizes, room):
    costs = [
        sum(gain for gain, out in zip(gains, left_out, strict=True) if out)
        for left_out in product((0, 1), repeat=len(gains))
        if sum(size for size, out in zip(sizes, left_out, strict=True) if not out) <= room
    ]
    return min(costs)


ITEMS = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=7)


@given(ITEMS, st.floats(0.0, 1.0), st.floats(0.3, 2.0))
@settings(max_examples=examples(120), deadline=None)
def test_fractions_are_below_whole_numbers_and_those_are_right_up_to_the_level(items, share, factor):
    gains, sizes = (list(column) for column in zip(*items, strict=True))
    room = int(share * sum(sizes))
    best = optimum(gains, sizes, room)
    program = knapsack(gains, sizes, room)
    relaxed = program.relax()
    assert relaxed.bound <= best + 1e-9
    assert program.solve_whole(1e6, nodes=1000).bound == pytest.approx(best, abs=1e-3)
    level = factor * best
    cut = program.solve_whole(level, nodes=1000)
    assert cut.bound == pytest.approx(max(min(level, best), relaxed.bound), abs=1e-3)
    assert cut.bound <= best + 1e-9


@given(ITEMS, st.floats(0.0, 1.0), st.floats(0.0, 10.0))
@settings(max_examples=examples(120), deadline=None)
def test_any_multiplier_proves_a_bound_and_fixes_no_optimum(items, share, multiplier):
    gains, sizes = (list(column) for column in zip(*items, strict=True))
    room = int(share * sum(sizes))
    program = knapsack(gains, sizes, room)
    program.relax()
    program.multipliers = np.array([multiplier])
    best = optimum(gains, sizes, room)
    assert program.dual_bound()[0] <= best + 1e-9
    assert program.solve_whole(2.0 * best + 1.0, nodes=1000).bound <= best + 1e-3


def test_what_no_fraction_obeys_is_said_to_be_infeasible():
    assert knapsack([1], [2], -1).relax().is_infeasible
    assert not knapsack([1], [2], 0).relax().is_infeasible


def test_out_of_time_nothing_is_proved_and_nothing_refuted():
    draw = np.random.default_rng(0)
    count = 3000
    program = SparseProgram()
    columns = program.variables(np.ones(count, dtype=bool))
    for _ in range(300):
        chosen = np.sort(draw.choice(columns, 200, replace=False))
        program.add_row(chosen, -draw.random(200), -float(20.0 * draw.random()))
    program.close(draw.random(count), np.zeros(count), np.ones(count))
    answer = program.relax(0.0)
    assert not answer.is_infeasible
    assert answer.bound <= program.relax().bound


@pytest.mark.parametrize("is_whole", [False, True])
def test_what_nothing_obeys_is_infeasible(is_whole):
    rows, upper, ones = csr_array(np.ones((1, 2))), np.array([-1.0]), np.ones(2)
    if is_whole:
        found = solve_mixed(ones, [(rows, upper)], 0 * ones, ones, ones, relative_gap=PROOF_GAP)
    else:
        found = solve_fractions(ones, rows, upper, 0 * ones, ones)
    assert found.is_infeasible
    assert found.values is None


def test_rows_of_one_shape_are_those_that_are_added_one_by_one():
    together, apart = SparseRows(), SparseRows()
    for rows in (together, apart):
        first = rows.variables(np.array([True, False, True]))
        second = rows.variables(np.array([True, True]))
        assert first.tolist() == [0, -1, 1]
        assert second.tolist() == [2, 3]
        assert rows.add_row(np.array([0, 3]), np.array([1.0, 2.0]), 7.0) == 0
    assert together.add_rows(((np.array([0, 1]), 1.0), (np.array([2, 3]), -1.0)), 0.5) == slice(1, 3)
    apart.add_row(np.array([0, 2]), np.array([1.0, -1.0]), 0.5)
    apart.add_row(np.array([1, 3]), np.array([1.0, -1.0]), 0.5)
    assert (together.matrix().toarray() == apart.matrix().toarray()).all()
    assert together.upper().tolist() == apart.upper().tolist() == [7.0, 0.5, 0.5]
    assert together.row_count == apart.row_count == 3


def test_a_single_row_covers_all_variables():
    matrix, upper = one_row(np.array([1.0, 2.0, 3.0]), 4.0)
    assert (matrix.toarray().tolist(), upper) == ([[1.0, 2.0, 3.0]], 4.0)
