"""Minimize a cost over variables between bounds under sparse rows `sum <= upper`, in fractions or in whole numbers.

The rows' multipliers prove the bound by themselves, whatever the solver's tolerances (Lagrangian duality): any
multipliers that are not negative will do. With them a variable whose reduced cost alone exceeds what is left below a
level can be fixed, if only what is cheaper than that level is looked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.sparse import csr_array

from neaptide.linear.arrays import Flags, Floats, Ints
from neaptide.linear.solver import BOUND_GAP, solve_fractions, solve_mixed

# Given away from what branch and bound has proved, beside the gap.
_ABSOLUTE_GAP: Final = 1e-6
# Rounding errors in sums of as many terms as there are rows, as a share of the largest.
_ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True)
class SparseAnswer:
    """What the solver found.

    Attributes:
        is_infeasible: not even fractions obey the rows.
        bound: no solution costs less.
        values: of the variables; None when there is no answer.
    """

    is_infeasible: bool
    bound: float
    values: Floats | None = None


class SparseProgram:
    """Variables and rows, put together piece by piece, then `close`d and solved.

    Attributes:
        size: variables so far.
        row_count: rows so far.
        multipliers: by row, from the last relaxation; None before it.
    """

    def __init__(self) -> None:
        self.size = 0
        self.row_count = 0
        self.multipliers: Floats | None = None
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
        self._rows.append(np.full(len(columns), row))
        self._columns.append(columns)
        self._entries.append(entries)
        self._upper.append(np.array([upper]))
        self.row_count += 1
        return row

    def add_rows(self, terms: Sequence[tuple[Ints, float]], upper: float) -> slice:
        """Rows of the same shape, the k-th with the k-th variable of each term; their numbers."""
        count = len(terms[0][0])
        first = self.row_count
        rows = first + np.arange(count)
        for columns, factor in terms:
            self._rows.append(rows)
            self._columns.append(columns)
            self._entries.append(np.full(count, factor))
        self._upper.append(np.full(count, upper))
        self.row_count += count
        return slice(first, self.row_count)

    def close(self, cost: Floats, low: Floats, high: Floats, *, always_in_part: Sequence[int] = ()) -> None:
        """Nothing more is added; costs and bounds of the variables, and which are never asked for in whole numbers."""
        self._cost, self._low, self._high = cost, low, high
        self._is_whole = np.ones(self.size, dtype=bool)
        self._is_whole[list(always_in_part)] = False
        nothing = np.zeros(0, dtype=np.int64)
        places = np.concatenate([nothing, *self._rows]), np.concatenate([nothing, *self._columns])
        entries = np.concatenate([np.zeros(0), *self._entries])
        self._matrix = csr_array((entries, places), shape=(self.row_count, self.size))
        self._bounds: Floats = np.concatenate([np.zeros(0), *self._upper])

    def relax(self, time_s: float | None = None) -> SparseAnswer:
        """The optimum in fractions, by the dual simplex. Out of time there is no answer, and the bound is zero."""
        if not self.size:
            return SparseAnswer(bool((self._bounds < 0.0).any()), 0.0)
        found = solve_fractions(self._cost, self._matrix, self._bounds, self._low, self._high, time_s=time_s)
        if found.is_infeasible:
            return SparseAnswer(is_infeasible=True, bound=float("inf"))
        if not found.is_solved:
            return SparseAnswer(is_infeasible=False, bound=0.0)
        self.multipliers = found.multipliers
        return SparseAnswer(False, max(self.dual_bound()[0], 0.0), found.values)

    def solve_whole(
        self,
        level: float = float("inf"),
        *,
        nodes: int,
        time_s: float | None = None,
        relative_gap: float = BOUND_GAP,
    ) -> SparseAnswer:
        """The optimum in whole numbers, if it is below a level; after `relax` variables are fixed for that.

        Args:
            level: dearer solutions are not looked for; the bound is at most this.
            nodes: of branch and bound.
            time_s: of the solver.
            relative_gap: an answer this close to its bound is the last, as a share of it.
        """
        low, high = self._fixed(level)
        found = solve_mixed(
            self._cost,
            [(self._matrix, -np.inf, self._bounds)],
            low,
            high,
            self._is_whole.astype(np.float64),
            relative_gap=relative_gap,
            nodes=nodes,
            time_s=time_s,
        )
        if found.is_infeasible:
            return SparseAnswer(is_infeasible=False, bound=level)
        bound = 0.0 if found.bound is None else found.bound
        if found.cost is not None:
            bound = min(bound, found.cost)
        bound -= _ABSOLUTE_GAP + relative_gap * abs(bound)
        bound = max(min(bound, level), self.dual_bound()[0], 0.0)
        values = found.values
        if values is not None:
            values = np.where(self._is_whole, np.round(values), values)
        return SparseAnswer(False, bound, values)

    def dual_bound(self) -> tuple[float, Floats]:
        """Value of the multipliers, and reduced costs. Holds for any multipliers that are not negative."""
        multipliers = self.multipliers
        if multipliers is None:
            return 0.0, self._cost
        reduced = self._cost + self._matrix.T @ multipliers
        parts = np.where(reduced > 0.0, reduced * self._low, reduced * self._high)
        fixed = multipliers * self._bounds
        rounding = _ROUNDING * float(np.abs(parts).max(initial=0.0) + np.abs(fixed).max(initial=0.0))
        return float(parts.sum() - fixed.sum()) - rounding, reduced

    def _fixed(self, level: float) -> tuple[Floats, Floats]:
        """Bounds of the variables in all whole solutions cheaper than a level."""
        value, reduced = self.dual_bound()
        left = level - value
        low, high = self._low.copy(), self._high.copy()
        if left >= 0.0:
            high[reduced > left] = self._low[reduced > left]
            low[reduced < -left] = self._high[reduced < -left]
        return low, high
