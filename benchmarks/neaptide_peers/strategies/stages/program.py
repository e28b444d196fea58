"""Recomputation as an integer program over stages and units (Jain et al. 2020, Checkmate).

`again[t, u]`: unit u runs again in stage t. `held[t, s]`: storage s is there when stage t begins. `freed[t, s, k]`: it
goes after step k of the stage. `used[t, k]`: bytes at step k. Differences to the paper: a unit may make several
storages; scratch bytes count; `freed` is split by what excludes it, as in the later releases, and what excludes one
another is summed up in one row (of all frees of a storage in a stage and its being held into the next one at most one
is true; the same for all frees before one of its readers, and that reader), which makes the relaxation tighter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from neaptide.linear.rows import Rows, SparseRows, one_row
from neaptide.linear.solver import solve_fractions, solve_mixed
from neaptide.linear.tolerances import GIVEN_AWAY, HALF, PROOF_GAP
from neaptide.planner.recompute.units import StageUnits

# The solver takes rows for kept that are off by 1e-6: the smallest size should be more than that, the largest not
# so much that a fraction of a storage is taken for none.
_LARGEST_ENTRY: Final = 1000


class Verdict(Enum):
    """How far the solver came: proved best, proved that there is none, or stopped before either."""

    PROVED = "proved"
    INFEASIBLE = "infeasible"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class StageSolution:
    """What the solver found.

    Attributes:
        verdict: how far it came.
        repeated: by stage, units that run again; None without a solution.
        bound: seconds that run again at least, in every plan in stages.
        nodes: of the search tree.
    """

    verdict: Verdict
    repeated: tuple[tuple[int, ...], ...] | None
    bound: float
    nodes: int


class StageProgram:
    """The program of some units and a budget.

    O(stages x units) binary variables, O(stages x dependencies) rows.

    Attributes:
        units: what it is about.
        binaries: number of binary variables.
        row_count: number of rows.
    """

    def __init__(self, units: StageUnits, budget_bytes: int) -> None:
        self.units = units
        step = units.step
        self._unit = math.gcd(*step.storage_bytes, *step.workspace) or 1
        self._scale = max(max(*step.storage_bytes, *step.workspace, 1) / _LARGEST_ENTRY, self._unit)
        # Bytes come in whole units: half of one above the limit admits nothing more, and forgives rounding.
        room = (budget_bytes - step.persistent_bytes) // self._unit * self._unit
        self._room = (room + self._unit / 2) / self._scale
        self._rows = SparseRows()
        self._column_high: list[float] = []
        self._again: dict[tuple[int, int], int] = {}
        self._held: dict[tuple[int, int], int] = {}
        self._readers = self._repeating_readers()
        for stage in range(units.stages):
            for index in units.again(stage):
                self._again[stage, index] = self._column()
        for storage, index in enumerate(units.unit_of):
            if index >= 0:
                for stage in range(units.units[index].position + 1, units.needed_until[storage] + 1):
                    self._held[stage, storage] = self._column()
        self.binaries = self._rows.size
        self._write_presence()
        for stage in range(units.stages):
            self._write_bytes(stage)
        self.row_count = self._rows.row_count

    def relaxed_seconds(self, time_s: float | None = None) -> float | None:
        """The bound of the relaxation to fractions, in seconds; infinite if it has no solution, None if cut short."""
        if self._room < 0.0:
            return math.inf
        if not self._again:
            return 0.0
        matrix, upper, high = self._rows.matrix(), self._rows.upper(), np.array(self._column_high)
        found = solve_fractions(self._cost(), matrix, upper, np.zeros(len(high)), high, time_s=time_s)
        if found.is_infeasible:
            return math.inf
        return self._safe(found.cost) if found.is_solved else None

    def solve(
        self, *, nodes: int, time_s: float | None = None, at_most_s: float | None = None
    ) -> StageSolution:
        """Branch and bound.

        Args:
            nodes: of the search tree; the limit that is the same on every machine.
            time_s: of the solver.
            at_most_s: only plans that run no more seconds again are wanted.
        """
        if self._room < 0.0:
            return StageSolution(Verdict.INFEASIBLE, None, math.inf, 0)
        if not self._rows.size:
            return self._without_choice()
        cost = self._cost()
        parts: list[Rows] = [(self._rows.matrix(), self._rows.upper())]
        if at_most_s is not None and self._again:
            limit = at_most_s / self._largest * (1.0 + PROOF_GAP) + PROOF_GAP
            parts.append(one_row(cost, limit))
        integrality = np.zeros(len(cost))
        integrality[: self.binaries] = 1
        found = solve_mixed(
            cost,
            parts,
            np.zeros(len(cost)),
            np.array(self._column_high),
            integrality,
            relative_gap=PROOF_GAP,
            nodes=nodes,
            time_s=time_s,
        )
        if found.is_infeasible:
            return StageSolution(Verdict.INFEASIBLE, None, math.inf, found.nodes)
        verdict = Verdict.PROVED if found.is_solved else Verdict.STOPPED
        return StageSolution(verdict, self._read(found.values), self._safe(found.bound), found.nodes)

    def _without_choice(self) -> StageSolution:
        """Nothing is held and nothing can run again: what is left of the rows holds or does not."""
        if bool((self._rows.upper() >= 0.0).all()):
            return StageSolution(Verdict.PROVED, ((),) * self.units.stages, 0.0, 0)
        return StageSolution(Verdict.INFEASIBLE, None, math.inf, 0)

    @property
    def _largest(self) -> float:
        return max((unit.seconds for unit in self.units.units), default=0.0) or 1.0

    def _safe(self, objective: float | None) -> float:
        """A bound of the solver in seconds, with what it may be off taken away."""
        if objective is None or not math.isfinite(objective):
            return 0.0
        return max(objective - GIVEN_AWAY * max(objective, 1.0), 0.0) * self._largest

    def _cost(self) -> NDArray[np.float64]:
        cost = np.zeros(self._rows.size)
        for (_, index), column in self._again.items():
            cost[column] = self.units.units[index].seconds / self._largest
        return cost

    def _column(self, high: float = 1.0) -> int:
        """One more variable, from zero to a largest value."""
        self._column_high.append(high)
        return int(self._rows.variables(np.ones(1, dtype=bool))[0])

    def _add_terms(
        self, terms: Sequence[tuple[float, int]], *, low: float = -math.inf, high: float = math.inf
    ) -> None:
        """A sum as pairs of entry and variable, between two limits."""
        columns = np.array([column for _, column in terms], dtype=np.int64)
        entries = np.array([entry for entry, _ in terms], dtype=np.float64)
        for sign, limit in ((1.0, high), (-1.0, -low)):
            if limit != math.inf:
                self._rows.add_row(columns, sign * entries, limit)

    def _read(self, values: NDArray[np.float64] | None) -> tuple[tuple[int, ...], ...] | None:
        if values is None:
            return None
        repeated: list[list[int]] = [[] for _ in range(self.units.stages)]
        for (stage, index), column in self._again.items():
            if values[column] > HALF:
                repeated[stage].append(index)
        return tuple(tuple(sorted(units)) for units in repeated)

    def _repeating_readers(self) -> dict[int, list[int]]:
        readers: dict[int, list[int]] = {}
        for index, unit in enumerate(self.units.units):
            for storage in unit.reads:
                readers.setdefault(storage, []).append(index)
        return readers

    def _there(self, stage: int, storage: int) -> list[tuple[float, int]]:
        """Whose sum is 1 where a storage is there once its unit has had its turn in a stage."""
        found = (self._held.get((stage, storage)), self._again.get((stage, self.units.unit_of[storage])))
        return [(1.0, column) for column in found if column is not None]

    def _write_presence(self) -> None:
        """What is held was there in the stage before, and what is read is there."""
        units = self.units
        for (stage, storage), column in self._held.items():
            if units.units[units.unit_of[storage]].position < stage - 1:
                before = [(-entry, other) for entry, other in self._there(stage - 1, storage)]
                self._add_terms([(1.0, column), *before], high=0.0)
        for stage, reads in enumerate(units.reads):
            for storage in reads:
                self._add_terms(self._there(stage, storage), low=1.0)
        for storage, is_output in enumerate(units.is_output):
            if is_output:
                self._add_terms(self._there(len(units.order), storage), low=1.0)
        for (stage, index), column in self._again.items():
            for storage in units.units[index].reads:
                there = [(-entry, other) for entry, other in self._there(stage, storage)]
                self._add_terms([(1.0, column), *there], high=0.0)

    def _write_bytes(self, stage: int) -> None:
        """Bytes at each step of a stage, and what is freed after it."""
        units, step = self.units, self.units.step
        again = units.again(stage)
        frees = self._write_frees(stage, again)
        used: list[tuple[float, int]] = []
        fixed = 0.0
        for storage in range(len(units.unit_of)):
            column = self._held.get((stage, storage))
            if column is not None and step.storage_bytes[storage]:
                used.append((self._bytes(storage), column))
        for index in again:
            made = sum(self._bytes(s) for s in units.units[index].storages)
            column = self._again[stage, index]
            here = self._column(self._room)
            self._add_terms([*used, (made, column), (-1.0, here)], low=0.0, high=0.0)
            scratch = units.units[index].workspace / self._scale
            if scratch:
                self._add_terms([(1.0, here), (scratch, column)], high=self._room)
            used = [(1.0, here), *((-self._bytes(s), freed) for s, freed in frees.get(index, ()))]
        if stage < len(units.order):
            node = units.order[stage]
            fixed = sum(self._bytes(s) for s in step.created[node]) + step.workspace[node] / self._scale
        self._add_terms(used, high=self._room - fixed)

    def _write_frees(self, stage: int, again: Sequence[int]) -> dict[int, list[tuple[int, int]]]:
        """By unit that runs again in a stage, (storage, variable of its going after it)."""
        units = self.units
        frees: dict[int, list[tuple[int, int]]] = {}
        last_reads = frozenset(units.reads[stage]) if stage < len(units.order) else frozenset()
        inside = set(again)
        for storage, owner in enumerate(units.unit_of):
            is_kept = stage == len(units.order) and units.is_output[storage]
            is_there = owner in inside or (stage, storage) in self._held
            if not is_there or is_kept or storage in last_reads or not units.step.storage_bytes[storage]:
                continue
            touching = [u for u in self._readers.get(storage, ()) if u in inside]
            if owner in inside:
                touching.append(owner)
            freed: list[tuple[float, int]] = []
            for index in sorted(touching):
                column = self._again[stage, index]
                if freed:
                    self._add_terms([*freed, (1.0, column)], high=1.0)
                going = self._column()
                self._add_terms([(1.0, going), (-1.0, column)], high=0.0)
                freed.append((1.0, going))
                frees.setdefault(index, []).append((storage, going))
            following = self._held.get((stage + 1, storage))
            if freed and following is not None:
                self._add_terms([*freed, (1.0, following)], high=1.0)
        return frees

    def _bytes(self, storage: int) -> float:
        return self.units.step.storage_bytes[storage] / self._scale
