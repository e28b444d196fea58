"""Minimize a cost over variables between bounds under sparse rows `sum <= upper`, in fractions or in whole numbers.

The rows' multipliers prove the bound by themselves, whatever the solver's tolerances (Lagrangian duality): any
multipliers that are not negative will do. With them a variable whose reduced cost alone exceeds what is left below a
level can be fixed, if only what is cheaper than that level is looked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from neaptide.linear.arrays import Floats
from neaptide.linear.rows import SparseRows
from neaptide.linear.solver import solve_fractions, solve_mixed
from neaptide.linear.tolerances import BOUND_GAP, GIVEN_AWAY, ROUNDING


@dataclass(frozen=True, slots=True)
class SparseAnswer:
    """What the solver found: whether not even fractions obey the rows, and a bound that no solution costs less than."""

    is_infeasible: bool
    bound: float
    values: Floats | None = None


class SparseProgram(SparseRows):
    """Variables and rows, put together piece by piece, then `close`d and solved."""

    def __init__(self) -> None:
        super().__init__()
        self.multipliers: Floats | None = None

    def close(self, cost: Floats, low: Floats, high: Floats, *, always_in_part: Sequence[int] = ()) -> None:
        """Nothing more is added; costs and bounds of the variables, and which are never asked for in whole numbers."""
        self._cost, self._low, self._high = cost, low, high
        self._is_whole = np.ones(self.size, dtype=bool)
        self._is_whole[list(always_in_part)] = False
        self._matrix = self.matrix()
        self._bounds = self.upper()

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

        Dearer solutions are not looked for, and the bound is at most the level. For the gap see `solve_mixed`.
        """
        low, high = self._fixed(level)
        found = solve_mixed(
            self._cost,
            [(self._matrix, self._bounds)],
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
        bound -= GIVEN_AWAY + relative_gap * abs(bound)
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
        rounding = ROUNDING * float(np.abs(parts).max(initial=0.0) + np.abs(fixed).max(initial=0.0))
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
