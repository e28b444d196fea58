"""The rows of a linear program, put together piece by piece: `sum of entries x variables <= upper`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from scipy.sparse import csr_array

from neaptide.linear.arrays import Flags, Floats, Ints

Rows: TypeAlias = tuple[csr_array, Floats | float]
"""Rows with their largest sums."""


class SparseRows:
    """Variables and rows that are numbered as they are added."""

    def __init__(self) -> None:
        self.size = 0
        self.row_count = 0
        self._rows: list[Ints] = []
        self._columns: list[Ints] = []
        self._entries: list[Floats] = []
        self._upper: list[Floats] = []

    def variables(self, wanted: Flags) -> Ints:
        """One variable for each wanted index; -1 for the others."""
        indices = np.full(len(wanted), -1, dtype=np.int64)
        chosen = np.flatnonzero(wanted)
        indices[chosen] = self.size + np.arange(len(chosen))
        self.size += len(chosen)
        return indices

    def add_row(self, columns: Ints, entries: Floats, upper: float) -> int:
        """One row; its number."""
        row = self.row_count
        self._add(np.full(len(columns), row), columns, entries)
        self._upper.append(np.array([upper]))
        self.row_count += 1
        return row

    def add_rows(self, terms: Sequence[tuple[Ints, float]], upper: float) -> slice:
        """Rows of the same shape, the k-th with the k-th variable of each term; their numbers."""
        count, first = len(terms[0][0]), self.row_count
        rows = first + np.arange(count)
        for columns, factor in terms:
            self._add(rows, columns, np.full(count, factor))
        self._upper.append(np.full(count, upper))
        self.row_count += count
        return slice(first, self.row_count)

    def add_entries(self, rows: Ints, columns: Ints, entries: Floats, upper: Floats) -> int:
        """Several rows at once, with `rows` counted from the first of them; the number of that one."""
        first = self.row_count
        self._add(first + rows, columns, entries)
        self._upper.append(upper)
        self.row_count += len(upper)
        return first

    def _add(self, rows: Ints, columns: Ints, entries: Floats) -> None:
        self._rows.append(rows)
        self._columns.append(columns)
        self._entries.append(entries)

    def matrix(self) -> csr_array:
        """The entries of all rows."""
        nothing = np.zeros(0, dtype=np.int64)
        where = np.concatenate([nothing, *self._rows]), np.concatenate([nothing, *self._columns])
        entries = np.concatenate([np.zeros(0), *self._entries])
        return csr_array((entries, where), shape=(self.row_count, self.size))

    def upper(self) -> Floats:
        """By row, the largest sum."""
        return np.concatenate([np.zeros(0), *self._upper])


def one_row(entries: Floats, upper: float) -> Rows:
    """A single row over all variables."""
    return csr_array(entries.reshape(1, -1)), upper
