"""What recomputation costs at least, seen at several steps at once: one program with a row of bytes for each step.

At a chosen step a storage is *held* across its first execution or it is not. Between two chosen steps, in a window, a
node runs *again* or it does not. The rules of a window: what is used in it is held at its beginning, or its maker runs
again inside. What runs again inside needs its operands likewise. What is held at its end was held at its beginning, or
is recomputed inside. What is held at a chosen step fits beside what that step makes and its scratch bytes. Every plan
with this order of first executions obeys these rules in whole numbers. So their least seconds bound it from below, and
so do those of the relaxation.

The windows between neighbours carry the cost. In whole numbers they are all there is. In fractions a node may run again
a little in each of many windows, and so require only a little of its operands. The longer window from a step to the
end, in which a node runs again if it does in one of its parts, requires them as a whole: with it, a step counts as much
as it does alone. The caller chooses which steps have it: whichever do not, the bound holds.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from neaptide.linear.arrays import Floats
from neaptide.linear.sparse_program import SparseAnswer, SparseProgram
from neaptide.linear.tolerances import NEARLY
from neaptide.planner.recompute.bounds.step_tables import StepTables
from neaptide.schedule.evaluate import Ints


@dataclass(frozen=True, slots=True)
class JointSolution:
    """An answer of the program; not even fractions fit into the bytes where it `is_infeasible`."""

    is_infeasible: bool
    bound: float  # seconds that every plan runs again at least, counted after the first of the steps
    # By step, share of each storage that is held across it (0 for what is not made yet).
    held: tuple[Floats, ...] = ()
    again: tuple[Floats, ...] = ()  # by step, share of each node that runs again between it and the next one
    # By step, seconds per byte of its row; zero where the bytes do not bind.
    multipliers: tuple[float, ...] = ()


class JointProgram:
    """The program at some positions of an order, ascending. O(steps x size of the problem) to make."""

    def __init__(
        self,
        tables: StepTables,
        positions: Sequence[int],
        budget_bytes: int,
        *,
        to_end: Collection[int] = (),
    ) -> None:
        """The steps `to_end` have a window to the end as well."""
        self.tables = tables
        self.positions = tuple(positions)
        self._program = SparseProgram()
        self._byte_scale = float(max(tables.sizes.max(initial=1), 1))
        self._second_scale = float(tables.seconds.max(initial=0.0)) or 1.0
        self._made = [tables.made_before(p) for p in positions]
        self._held = [self._program.variables(made) for made in self._made]
        self._before = [tables.position < p for p in positions]
        self._again = [self._program.variables(before) for before in self._before]
        self._byte_rows = [self._add_bytes(k, budget_bytes) for k in range(len(positions))]
        for k, again in enumerate(self._again):
            self._add_window(k, k + 1, again)
        self._to_end = [self._add_to_end(k) for k, p in enumerate(positions[:-1]) if p in to_end]
        self._close()

    @property
    def size(self) -> int:
        """Variables of the program."""
        return self._program.size

    def relax(self, time_s: float | None = None) -> JointSolution:
        """The optimum in fractions. One sparse linear program; out of time, an answer that says nothing."""
        return self._solution(self._program.relax(time_s))

    def solve_whole(self, below_seconds: float, *, nodes: int, time_s: float | None = None) -> JointSolution:
        """The optimum in whole numbers; needs `relax` first. Nothing above `below_seconds` is looked for, or proved."""
        if not self.size:
            return JointSolution(is_infeasible=False, bound=0.0)
        level = below_seconds / self._second_scale
        return self._solution(self._program.solve_whole(level, nodes=nodes, time_s=time_s))

    def binding(self, solution: JointSolution) -> tuple[int, ...]:
        """The positions whose bytes bind: without the others the bound of an answer is the same."""
        least = NEARLY * max(solution.multipliers, default=0.0)
        return tuple(
            p for p, price in zip(self.positions, solution.multipliers, strict=True) if price > least
        )

    def _solution(self, answer: SparseAnswer) -> JointSolution:
        bound = answer.bound * self._second_scale
        x = answer.values
        if x is None:
            return JointSolution(answer.is_infeasible, bound)
        prices = self._program.multipliers
        multipliers = np.zeros(len(self.positions)) if prices is None else prices[self._byte_rows]
        return JointSolution(
            is_infeasible=False,
            bound=bound,
            held=tuple(np.where(held >= 0, x[held], 0.0) for held in self._held),
            again=tuple(np.where(again >= 0, x[again], 0.0) for again in self._again),
            multipliers=tuple((multipliers * (self._second_scale / self._byte_scale)).tolist()),
        )

    def _add_bytes(self, k: int, budget_bytes: int) -> int:
        tables = self.tables
        storages = np.flatnonzero(self._made[k])
        room = budget_bytes - int(tables.fixed_bytes[tables.order[self.positions[k]]])
        sizes = tables.sizes[storages] / self._byte_scale
        return self._program.add_row(self._held[k][storages], sizes, room / self._byte_scale)

    def _add_to_end(self, k: int) -> Ints:
        """The window from a step to the end: a node runs again in it if it does in one of its parts."""
        again = self._program.variables(self._before[k])
        self._add_window(k, len(self.positions), again)
        nodes = np.flatnonzero(self._before[k])
        parts = [(part[nodes], -1.0) for part in self._again[k:]]
        self._program.add_rows(((again[nodes], 1.0), *parts), 0.0)
        return again

    def _add_window(self, k: int, end: int, again: Ints) -> None:
        tables, program = self.tables, self._program
        made, held, before = self._made[k], self._held[k], self._before[k]
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
        written = (touched & made)[storages] & before[nodes]
        whole = np.flatnonzero(used & made)
        makers = np.concatenate((tables.creator[whole], nodes[written]))
        program.add_rows(
            ((held[np.concatenate((whole, storages[written]))], -1.0), (again[makers], -1.0)), -1.0
        )
        # What runs again needs each operand held or recomputed.
        nodes, storages = tables.repeat
        asked = made[storages] & before[nodes] & tables.may_repeat[nodes]
        nodes, storages = nodes[asked], storages[asked]
        program.add_rows(
            ((again[nodes], 1.0), (held[storages], -1.0), (again[tables.creator[storages]], -1.0)), 0.0
        )
        if not is_last:
            storages = np.flatnonzero(made)
            later = self._held[end][storages]
            program.add_rows(
                ((later, 1.0), (held[storages], -1.0), (again[tables.creator[storages]], -1.0)), 0.0
            )

    def _close(self) -> None:
        """Costs, lower and upper bounds of the variables."""
        tables = self.tables
        cost, low, high = np.zeros(self.size), np.zeros(self.size), np.ones(self.size)
        for again in self._again:
            nodes = np.flatnonzero(again >= 0)
            cost[again[nodes]] = tables.seconds[nodes] / self._second_scale
        for again in (*self._again, *self._to_end):
            high[again[(again >= 0) & ~tables.may_repeat]] = 0.0
        for k, position in enumerate(self.positions):
            pinned = tables.used_within(position, position + 1) & self._made[k]
            low[self._held[k][pinned]] = 1.0
        self._program.close(cost, low, high)
