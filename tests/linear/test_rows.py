"""Rows say the same however they are added and whichever way they are written out."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from example_counts import examples
from neaptide.linear.rows import SparseRows, one_row

VARIABLES = 4
ENTRIES = st.dictionaries(st.integers(0, VARIABLES - 1), st.integers(-3, 3), max_size=VARIABLES)
LIMIT = st.one_of(st.none(), st.integers(-4, 4))
ROWS = st.lists(st.tuples(ENTRIES, LIMIT, LIMIT), max_size=6)


def built(rows):
    found = SparseRows()
    for _ in range(VARIABLES):
        found.variable()
    for entries, low, high in rows:
        terms = [(float(entry), column) for column, entry in entries.items()]
        found.add_terms(
            terms, low=-np.inf if low is None else float(low), high=np.inf if high is None else float(high)
        )
    return found


@given(ROWS, st.lists(st.integers(-2, 2), min_size=VARIABLES, max_size=VARIABLES))
@settings(max_examples=examples(120), deadline=None)
def test_one_sided_rows_hold_for_the_same_values(rows, values):
    x = np.array(values, dtype=np.float64)
    found = built(rows)
    sums = [sum(entry * values[column] for column, entry in entries.items()) for entries, _, _ in rows]
    holds = all(
        (low is None or low <= total) and (high is None or total <= high)
        for total, (_, low, high) in zip(sums, rows, strict=True)
    )
    matrix, low, high = found.limited()
    assert bool(((matrix @ x >= low) & (matrix @ x <= high)).all()) == holds
    matrix, upper = found.one_sided()
    assert bool((matrix @ x <= upper).all()) == holds


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
    matrix, low, high = one_row(np.array([1.0, 2.0, 3.0]), 4.0)
    assert matrix.toarray().tolist() == [[1.0, 2.0, 3.0]]
    assert (low, high) == (-np.inf, 4.0)
