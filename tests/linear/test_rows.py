"""Rows say the same however they are added."""

from __future__ import annotations

import numpy as np

from neaptide.linear.rows import SparseRows, one_row


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
