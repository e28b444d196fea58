"""Stays on the host as columns of the linear program that chooses repetitions, and the copy engines as its rows.

A column is a gap of the order of first executions and how long its storage is away in it. It takes its bytes from every
moment in between, and it needs both copies done in time: what begins and ends within a stretch of time takes no longer
than that stretch, with what runs again in it and with waiting, which costs as much as it takes. These are the windows of
one machine's preemptive relaxation; exact times come with the placement of the answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from neaptide.linear.arrays import Floats
from neaptide.linear.sparse_program import SparseProgram
from neaptide.planner.offload.engine_rows import add_engine_rows
from neaptide.planner.offload.gaps import GapKey, IdleGap
from neaptide.planner.offload.settings import SETTINGS
from neaptide.planner.recompute.pool.pool import RepetitionPool
from neaptide.planner.recompute.pool.program import OtherColumns, PoolAnswer, RepetitionProgram
from neaptide.schedule.evaluate import Ints
from neaptide.schedule.timeline import OffloadClock


@dataclass(frozen=True, slots=True)
class StayColumn:
    """One way to be away.

    Attributes:
        gap: in which.
        gone: position behind which the device bytes end.
        load: position before which they begin again.
        seconds: that operations wait for its copies even where nothing else is copied.
    """

    gap: IdleGap
    gone: int
    load: int
    seconds: float


class StayColumns:
    """The columns of one order of first executions; ways of being away join as placements find them.

    Attributes:
        clock: of that order.
        columns: so far.
        windows: of each, for each copy the cell in which it may begin and the one in which it is done; no cells for one
            that is not made.
    """

    def __init__(self, gaps: Iterable[IdleGap], clock: OffloadClock, most_s: float = math.inf) -> None:
        """O(gaps x log positions).

        Args:
            gaps: that may be filled.
            clock: of the order.
            most_s: a way of being away that is waited for longer, even alone, is left out; not one that has to be taken.
        """
        self.clock = clock
        self._most_s = most_s
        self._begins = clock.begins
        wanted = list(gaps)
        first = min((gap.start + 1 for gap in wanted), default=0)
        end = max((gap.end for gap in wanted), default=0)
        self.borders_s: Floats = np.linspace(self._begins[first], self._begins[end], SETTINGS.cells + 1)
        self.columns: list[StayColumn] = []
        self.windows: list[tuple[tuple[int, int], tuple[int, int]]] = []
        self._known: set[tuple[GapKey, int, int]] = set()
        for gap in wanted:
            self.add(gap, gap.start, self._latest(gap, gap.end))
            for store, load in SETTINGS.slacks:
                self.add(gap, *self._away(gap, store, load))

    def add(self, gap: IdleGap, gone: int, load: int) -> bool:
        """Have a way of being away among the columns; whether it is new, takes bytes from any step and is not too slow."""
        key = gap.key, gone, load
        if load - gone < 2 or key in self._known:
            return False
        self._known.add(key)
        begins = self.clock.begins_s
        stores = loads = 0.0
        if not gap.begins_before:
            stores = self.clock.out.seconds(gap.nbytes) - (begins[gone + 1] - begins[gap.start + 1])
        if not gap.ends_behind:
            loads = self.clock.back.seconds(gap.nbytes) - (begins[gap.end] - begins[load])
        seconds = max(stores, 0.0) + max(loads, 0.0)
        if seconds > self._most_s and not gap.is_between:
            return False
        self.columns.append(StayColumn(gap, gone, load, seconds))
        self.windows.append(self._windows(self.columns[-1]))
        return True

    def _away(self, gap: IdleGap, store: int, load: int) -> tuple[int, int]:
        """Positions where both copies are done some cells later than they could be at the earliest."""
        cell = float(self.borders_s[1] - self.borders_s[0])
        gone = self._begins[gap.start + 1] + self.clock.out.seconds(gap.nbytes) + store * cell
        back = self._begins[gap.end] - self.clock.back.seconds(gap.nbytes) - load * cell
        behind = max(int(np.searchsorted(self._begins, gone)) - 1, gap.start)
        before = min(int(np.searchsorted(self._begins, back, side="right")) - 1, gap.end)
        return gap.start if gap.begins_before else behind, self._latest(gap, before)

    def _latest(self, gap: IdleGap, load: int) -> int:
        """A load begins before an operation; where there is none, the storage is away to the end."""
        return gap.end if gap.ends_behind else min(load, len(self._begins) - 2)

    def _windows(self, column: StayColumn) -> tuple[tuple[int, int], tuple[int, int]]:
        """As in `windows`."""
        gap = column.gap
        store = load = (-1, SETTINGS.cells)
        if not gap.begins_before:
            begin = self._cell(gap.start + 1)
            # The border of two cells belongs to both, so a copy that is waited for at once may end where it begins.
            store = begin, max(self._cell(column.gone + 1, is_end=True), begin)
        if not gap.ends_behind:
            done = self._cell(gap.end, is_end=True)
            load = min(self._cell(column.load), done), done
        return store, load

    def cell_of(self, position: int) -> int:
        """The cell in which an operation begins; what is before the first counts to it, what is behind to the last."""
        return min(max(self._cell(position), 0), SETTINGS.cells - 1)

    def _cell(self, position: int, *, is_end: bool = False) -> int:
        side: Literal["left", "right"] = "left" if is_end else "right"
        return int(np.searchsorted(self.borders_s, float(self._begins[position]), side=side)) - 1


class StayProgram(RepetitionProgram):
    """Repetitions and stays chosen together. Room on the host is left to the placement.

    Attributes:
        use: share of each stretch of time in which an engine copies; less than 1 leaves room for what the rows do not
            see.
    """

    def __init__(self, budget_bytes: int, baseline_seconds: float, stays: StayColumns) -> None:
        super().__init__(budget_bytes, baseline_seconds)
        self.stays = stays
        self.use = 1.0

    def shares(self, pool: RepetitionPool, values: Floats) -> Floats:
        """How much of each column an answer takes."""
        first = pool.variables + 1
        return values[first : first + len(self.stays.columns)]

    def seconds(self, pool: RepetitionPool, answer: PoolAnswer) -> float:
        """What an answer adds to the order, by repetitions, slow copies and waiting for busy engines."""
        first, count = pool.variables + 1, len(self.stays.columns)
        shares, waits = answer.values[first : first + count], answer.values[first + count :][: SETTINGS.cells]
        alone = np.array([column.seconds for column in self.stays.columns])
        return float(answer.seconds + alone @ shares + waits.sum())

    def _profile(self, pool: RepetitionPool, values: Floats) -> Floats:
        shares = self.shares(pool, values)
        start, end = self._moments(pool)
        nbytes = np.array([c.gap.nbytes for c in self.stays.columns], dtype=np.float64) * shares
        change = np.zeros(len(pool.moments) + 1)
        np.add.at(change, start, -nbytes)
        np.add.at(change, end + 1, nbytes)
        profile: Floats = pool.profile(values) + np.cumsum(change)[:-1]
        return profile

    def _moments(self, pool: RepetitionPool) -> tuple[Ints, Ints]:
        """First and last moment at which the bytes of each column are away."""
        first = pool.first_moment
        start = np.array(
            [0 if c.gap.begins_before else first[c.gone] + 1 for c in self.stays.columns], dtype=np.int64
        )
        end = np.array([first[c.load - 1] for c in self.stays.columns], dtype=np.int64)
        return start, end

    def _beside(self, program: SparseProgram, pool: RepetitionPool) -> OtherColumns:
        columns = self.stays.columns
        variables = program.variables(np.ones(len(columns), dtype=bool))
        waits = program.variables(np.ones(SETTINGS.cells, dtype=bool))
        start, end = self._moments(pool)
        self._once(program, columns, variables)
        self._only_what_is_there(program, pool, variables, start, end)
        sums = self._engines(program, pool, variables, waits)
        nbytes = np.array([c.gap.nbytes for c in columns], dtype=np.float64)
        seconds = np.array([c.seconds for c in columns], dtype=np.float64)
        return OtherColumns(variables, start, end, nbytes, seconds, waits, sums)

    def _once(self, program: SparseProgram, columns: Sequence[StayColumn], variables: Ints) -> None:
        """A gap is filled in one way, and one of a storage that waits between two steps is filled."""
        of: dict[GapKey, list[int]] = {}
        for number, column in enumerate(columns):
            of.setdefault(column.gap.key, []).append(number)
        for numbers in of.values():
            if len(numbers) > 1:
                program.add_row(variables[numbers], np.ones(len(numbers)), 1.0)
            if columns[numbers[0]].gap.is_between:
                program.add_row(variables[numbers], -np.ones(len(numbers)), -1.0)

    def _only_what_is_there(
        self, program: SparseProgram, pool: RepetitionPool, variables: Ints, start: Ints, end: Ints
    ) -> None:
        """What is away is alive, and nothing that runs again touches it."""
        touching: dict[int, list[tuple[int, int]]] = {}
        for number, (_, index) in enumerate(pool.items):
            unit = pool.units.units[index]
            for storage in (*unit.storages, *unit.reads):
                touching.setdefault(storage, []).append((int(pool.item_moment[number]), number))
        for number, column in enumerate(self.stays.columns):
            storage, variable = column.gap.storage, int(variables[number])
            first, last = int(start[number]), int(end[number])
            for moment, item in touching.get(storage, ()):
                if first <= moment <= last:
                    program.add_row(np.array([variable, item]), np.ones(2), 1.0)
            for stretch in pool.stretches.get(storage, ()):
                if stretch.variable >= 0 and stretch.end >= first and stretch.start < last:
                    alive = np.array([variable, stretch.variable])
                    program.add_row(alive, np.array([1.0, -1.0]), 0.0)

    def _engines(self, program: SparseProgram, pool: RepetitionPool, variables: Ints, waits: Ints) -> Ints:
        """What an engine has to do within each run of cells takes no longer than these; the sums that say so."""
        stays = self.stays
        windows = np.array(stays.windows, dtype=np.int64).reshape(-1, 2, 2)
        nbytes = np.array([column.gap.nbytes for column in stays.columns], dtype=np.float64)
        cell_s = max(float(stays.borders_s[1] - stays.borders_s[0]), 1e-12)
        relief = program.variables(np.ones(SETTINGS.cells, dtype=bool))
        every = np.arange(SETTINGS.cells)
        cells = np.array([stays.cell_of(stage) for stage, _ in pool.items], dtype=np.int64)
        program.add_entries(
            np.concatenate((every, every, cells)),
            np.concatenate((relief, waits, np.arange(len(cells)))),
            np.concatenate(
                (np.ones(SETTINGS.cells), np.full(SETTINGS.cells, -1.0 / cell_s), -pool.seconds / cell_s)
            ),
            np.zeros(SETTINGS.cells),
        )
        number: dict[GapKey, int] = {}
        gap = np.array(
            [number.setdefault(column.gap.key, len(number)) for column in stays.columns], dtype=np.int64
        )
        sums = [relief]
        for engine, link in enumerate((stays.clock.out, stays.clock.back)):
            begin, done = windows[:, engine].T
            seconds = link.latency_s + nbytes / link.bandwidth_bytes_per_s
            sums.append(
                add_engine_rows(program, variables, gap, begin, done, seconds / (self.use * cell_s), relief)
            )
        return np.concatenate(sums)
