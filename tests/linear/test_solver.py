"""Small programs against all choices, and against what multipliers mean."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from example_counts import examples
from neaptide.linear.solver import solve_fractions, solve_mixed
from neaptide.linear.tolerances import PROOF_GAP

NUMBERS = st.integers(0, 6)


@st.composite
def programs(draw):
    """Costs of any sign under two rows of sizes: something is always allowed, since nothing at all is."""
    count = draw(st.integers(1, 6))
    costs = draw(st.lists(st.integers(-9, 9), min_size=count, max_size=count))
    rows = [draw(st.lists(NUMBERS, min_size=count, max_size=count)) for _ in range(2)]
    upper = draw(st.lists(NUMBERS, min_size=2, max_size=2))
    return np.array(costs, float), np.array(rows, float), np.array(upper, float)


def best_choice(costs, rows, upper):
    choices = [np.array(choice) for choice in product((0, 1), repeat=len(costs))]
    return min(float(costs @ choice) for choice in choices if (rows @ choice <= upper).all())


@given(programs())
@settings(max_examples=examples(120), deadline=None)
def test_whole_numbers_are_the_best_choice_and_fractions_are_below(program):
    costs, rows, upper = program
    zeros, ones = np.zeros(len(costs)), np.ones(len(costs))
    best = best_choice(*program)
    whole = solve_mixed(costs, [(csr_array(rows), upper)], zeros, ones, ones, relative_gap=PROOF_GAP)
    assert whole.is_solved
    assert whole.cost == pytest.approx(best, abs=1e-6)
    assert whole.bound is None or whole.bound <= best + 1e-6
    relaxed = solve_fractions(costs, csr_array(rows), upper, zeros, ones)
    assert relaxed.is_solved
    assert relaxed.bound <= best + 1e-6
    # Any multipliers that are not negative prove a bound; those of the optimum prove the optimum.
    reduced = costs + relaxed.multipliers @ rows
    assert float(np.minimum(reduced, 0.0).sum() - relaxed.multipliers @ upper) == pytest.approx(
        relaxed.bound, abs=1e-6
    )


def test_equal_rows_hold():
    rows, whole = csr_array(np.zeros((1, 3))), csr_array(np.ones((1, 3)))
    found = solve_fractions(
        np.array([3.0, 1.0, 2.0]),
        rows,
        np.ones(1),
        np.zeros(3),
        np.full(3, np.inf),
        equal=(whole, np.array([4.0])),
    )
    assert found.values == pytest.approx([0.0, 4.0, 0.0])


@pytest.mark.parametrize("is_whole", [False, True])
def test_what_nothing_obeys_is_infeasible(is_whole):
    rows, upper, ones = csr_array(np.ones((1, 2))), np.array([-1.0]), np.ones(2)
    if is_whole:
        found = solve_mixed(ones, [(rows, upper)], 0 * ones, ones, ones, relative_gap=PROOF_GAP)
    else:
        found = solve_fractions(ones, rows, upper, 0 * ones, ones)
    assert found.is_infeasible
    assert found.values is None
