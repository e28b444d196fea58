"""What recomputation must cost, seen at several steps at once: one program with a row of bytes for each of them.

At a chosen step a storage is *held* across its first execution or it is not. Between two chosen steps a node runs
*again* or it does not. What is used in a window between two of them is held at its beginning or its maker runs again
inside; what runs again inside needs its operands likewise; what is held at the end was held at the beginning or is
made again inside; and what is held at a chosen step fits beside what that step makes and its scratch bytes. Every
plan with this order of first executions obeys these rules in whole numbers, so their least seconds bound it from
below, and so do those of the relaxation. Windows next to each other carry the cost; a longer one may not have more of
a node than its parts together, which makes several steps at least as strong as each alone.

Multipliers of the rows give the bound by themselves, whatever the solver's tolerances (Lagrangian duality): any
multipliers that are not negative will do. With them a variable whose reduced cost alone exceeds what is left below a
level can be fixed, if only what is cheaper than that level is looked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, linprog, milp
from scipy.sparse import csr_array

from neaptide.planner.recompute.step_tables import Flags, Floats, StepTables
from neaptide.schedule.evaluate import Ints

_INFEASIBLE: Final = 2  # linprog's and milp's status
# How close to its optimum branch and bound stops; given away where it counts as a bound.
_RELATIVE_GAP: Final = 1e-5
_ABSOLUTE_GAP: Final = 1e-6
# Rounding errors in sums of as many terms as there are rows, as a share of the largest.
_ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True)
class JointSolution:
    """An answer of the program.

    Attributes:
        is_infeasible: not even fractions fit into the bytes.
        bound: seconds that every plan runs again at least, counted after the first of the steps.
        held: by step, share of each storage that is held across it (0 for what is not made yet).
        again: by step, share of each node that runs again between it and the next one.
        multipliers: by step, seconds per byte of its row; zero where the bytes do not bind.
    """

    is_infeasible: bool
    bound: float
    held: tuple[Floats, ...] = ()
    again: tuple[Floats, ...] = ()
    multipliers: tuple[float, ...] = ()


class JointProgram:
    """The program at some positions of an order."""

    def __init__(
        self,
        tables: StepTables,
        positions: Sequence[int],
        budget_bytes: int,
        withheld: Mapping[int, int] = MappingProxyType({}),
    ) -> None:
        """O(steps^2 x size of the problem).

        Args:
            tables: of the step.
            positions: ascending, at least one.
            budget_bytes: highest peak with workspace.
            withheld: by position, bytes less than that for its row; its bounds are no bounds of the step then.
        """
        self.tables = tables
        self.positions = tuple(positions)
        self._rows: list[Ints] = []
        self._columns: list[Ints] = []
        self._entries: list[Floats] = []
        self._upper: list[Floats] = []
        self._row_count = 0
        self._size = 0
        self._byte_scale = float(max(tables.sizes.max(initial=1), 1))
        self._second_scale = float(tables.seconds.max(initial=0.0)) or 1.0
        count = len(positions)
        self._made = [tables.made_before(p) for p in positions]
        self._held = [self._variables(made) for made in self._made]
        self._before = [tables.position < p for p in positions]
        self._again = {
            (k, end): self._variables(self._before[k])
            for k in range(count)
            for end in range(k + 1, count + 1)
        }
        self._byte_rows = [
            self._add_bytes(k, budget_bytes - withheld.get(p, 0)) for k, p in enumerate(positions)
        ]
        for k, end in self._again:
            self._add_window(k, end)
        self._cost, self._low, self._high = self._limits()
        places = np.concatenate(self._rows), np.concatenate(self._columns)
        self._matrix = csr_array((np.concatenate(self._entries), places), shape=(self._row_count, self._size))
        self._bounds = np.concatenate(self._upper)
        self._multipliers: Floats | None = None

    @property
    def size(self) -> int:
        """Variables of the program."""
        return self._size

    def relax(self) -> JointSolution:
        """The optimum in fractions. One sparse linear program."""
        if not self._size:
            return JointSolution(bool((self._bounds < 0.0).any()), 0.0)
        found = linprog(
            self._cost,
            A_ub=self._matrix,
            b_ub=self._bounds,
            bounds=np.stack((self._low, self._high), axis=1),
            method="highs",
        )
        if found.status == _INFEASIBLE:
            return JointSolution(is_infeasible=True, bound=float("inf"))
        if found.x is None:
            return JointSolution(is_infeasible=False, bound=0.0)
        self._multipliers = np.maximum(-np.asarray(found.ineqlin.marginals), 0.0)
        return self._solution(found.x, max(self._dual_bound()[0], 0.0) * self._second_scale)

    def solve_whole(self, below_seconds: float, *, nodes: int, time_s: float | None = None) -> JointSolution:
        """The optimum in whole numbers, if it is below some seconds; needs `relax` first.

        Args:
            below_seconds: dearer solutions are not looked for; the bound is at most this.
            nodes: of branch and bound.
            time_s: of the solver.
        """
        if not self._size:
            return JointSolution(is_infeasible=False, bound=0.0)
        level = below_seconds / self._second_scale
        low, high = self._fixed(level)
        options: dict[str, float] = {"mip_rel_gap": _RELATIVE_GAP, "node_limit": nodes}
        if time_s is not None:
            options["time_limit"] = max(time_s, 0.01)
        found = milp(
            self._cost,
            constraints=LinearConstraint(self._matrix, -np.inf, self._bounds),
            bounds=Bounds(low, high),
            integrality=np.ones(self._size),
            options=options,
        )
        if found.status == _INFEASIBLE:
            return JointSolution(is_infeasible=False, bound=below_seconds)
        reached = found.mip_dual_bound
        bound = 0.0 if reached is None or not np.isfinite(reached) else float(reached)
        if found.fun is not None:
            bound = min(bound, float(found.fun))
        bound -= _ABSOLUTE_GAP + _RELATIVE_GAP * abs(bound)
        bound = max(min(bound, level), self._dual_bound()[0], 0.0) * self._second_scale
        if found.x is None:
            return JointSolution(is_infeasible=False, bound=bound)
        return self._solution(np.round(found.x), bound)

    def _dual_bound(self) -> tuple[float, Floats]:
        """Value of the multipliers, and reduced costs. Holds for any multipliers that are not negative."""
        multipliers = self._multipliers
        if multipliers is None:
            return 0.0, self._cost
        reduced = self._cost + self._matrix.T @ multipliers
        parts = np.where(reduced > 0.0, reduced * self._low, reduced * self._high)
        fixed = multipliers * self._bounds
        rounding = _ROUNDING * float(np.abs(parts).max(initial=0.0) + np.abs(fixed).max(initial=0.0))
        return float(parts.sum() - fixed.sum()) - rounding, reduced

    def _fixed(self, level: float) -> tuple[Floats, Floats]:
        """Bounds of the variables in all whole solutions cheaper than a level."""
        value, reduced = self._dual_bound()
        left = level - value
        low, high = self._low.copy(), self._high.copy()
        if left >= 0.0:
            high[reduced > left] = self._low[reduced > left]
            low[reduced < -left] = self._high[reduced < -left]
        return low, high

    def _solution(self, x: Floats, bound: float) -> JointSolution:
        held, again, multipliers = [], [], []
        for k, indices in enumerate(self._held):
            held.append(np.where(indices >= 0, x[indices], 0.0))
            window = self._again[k, k + 1]
            again.append(np.where(window >= 0, x[window], 0.0))
            row = 0.0 if self._multipliers is None else float(self._multipliers[self._byte_rows[k]])
            multipliers.append(row * self._second_scale / self._byte_scale)
        return JointSolution(
            is_infeasible=False,
            bound=bound,
            held=tuple(held),
            again=tuple(again),
            multipliers=tuple(multipliers),
        )

    def _variables(self, wanted: Flags) -> Ints:
        """One variable for each wanted index; -1 for the others."""
        indices = np.full(len(wanted), -1, dtype=np.int64)
        chosen = np.flatnonzero(wanted)
        indices[chosen] = self._size + np.arange(len(chosen))
        self._size += len(chosen)
        return indices

    def _add(self, terms: Sequence[tuple[Ints, float]], upper: float) -> None:
        """Rows of the same shape: the k-th has the k-th variable of each term."""
        count = len(terms[0][0])
        rows = self._row_count + np.arange(count)
        for columns, factor in terms:
            self._rows.append(rows)
            self._columns.append(columns)
            self._entries.append(np.full(count, factor))
        self._upper.append(np.full(count, upper))
        self._row_count += count

    def _add_bytes(self, k: int, budget_bytes: int) -> int:
        tables = self.tables
        storages = np.flatnonzero(self._made[k])
        room = budget_bytes - int(tables.fixed_bytes[tables.order[self.positions[k]]])
        row = self._row_count
        self._rows.append(np.full(len(storages), row))
        self._columns.append(self._held[k][storages])
        self._entries.append(tables.sizes[storages] / self._byte_scale)
        self._upper.append(np.array([room / self._byte_scale]))
        self._row_count += 1
        return row

    def _add_window(self, k: int, end: int) -> None:
        tables = self.tables
        made, held, again = self._made[k], self._held[k], self._again[k, end]
        is_last = end == len(self.positions)
        until = len(tables.order) if is_last else self.positions[end]
        used = tables.used_within(self.positions[k], until)
        touched = tables.used_within(self.positions[k], until, touched=True)
        if is_last:
            used |= tables.is_output
            touched |= tables.is_output
        # A used storage is held, or its maker runs again, and so do the nodes that have overwritten it, unless only
        # views use it, whose version is that of who reads them.
        nodes, storages = tables.write
        written = (touched & made)[storages] & self._before[k][nodes]
        whole = np.flatnonzero(used & made)
        makers = np.concatenate((tables.creator[whole], nodes[written]))
        self._add(((held[np.concatenate((whole, storages[written]))], -1.0), (again[makers], -1.0)), -1.0)
        # What runs again needs each operand held or made again.
        nodes, storages = tables.repeat
        asked = made[storages] & self._before[k][nodes] & tables.may_repeat[nodes]
        nodes, storages = nodes[asked], storages[asked]
        self._add(((again[nodes], 1.0), (held[storages], -1.0), (again[tables.creator[storages]], -1.0)), 0.0)
        if not is_last:
            storages = np.flatnonzero(made)
            self._add(
                (
                    (self._held[end][storages], 1.0),
                    (held[storages], -1.0),
                    (again[tables.creator[storages]], -1.0),
                ),
                0.0,
            )
        if end > k + 1:
            nodes = np.flatnonzero(self._before[k])
            parts = [(self._again[part, part + 1][nodes], -1.0) for part in range(k, end)]
            self._add(((again[nodes], 1.0), *parts), 0.0)

    def _limits(self) -> tuple[Floats, Floats, Floats]:
        """Costs, lower and upper bounds of the variables."""
        tables = self.tables
        cost, low, high = np.zeros(self._size), np.zeros(self._size), np.ones(self._size)
        for (k, end), again in self._again.items():
            nodes = np.flatnonzero(self._before[k])
            if end == k + 1:
                cost[again[nodes]] = tables.seconds[nodes] / self._second_scale
            high[again[nodes[~tables.may_repeat[nodes]]]] = 0.0
        for k, position in enumerate(self.positions):
            pinned = tables.used_within(position, position + 1) & self._made[k]
            low[self._held[k][pinned]] = 1.0
        return cost, low, high
