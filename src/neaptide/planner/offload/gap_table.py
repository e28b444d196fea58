"""The gaps of a sequence that changes a little at a time.

Gaps are rows of arrays. An execution keeps its rank among those that touch a storage as long as none of these comes or
goes, so the rows of a storage are found again only where they do; positions are read anew, all at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import compress, count
from operator import is_not

import numpy as np

from neaptide.linear.arrays import Flags
from neaptide.planner.offload.gaps import GapKey, IdleGap, UsePair, use_pairs
from neaptide.planner.offload.host import HostSpace
from neaptide.schedule.evaluate import Evaluator, Ints
from neaptide.schedule.instances import AWAY, TO_END

_STORAGE, _OCCURRENCE, _LAST, _FOLLOWING, _BYTES, _COLUMNS = range(6)


class GapTable:
    """Gaps that may be filled, of a sequence that repetitions are added to and taken from.

    Those around a step are filled in any case, and have no rows.

    Attributes:
        movable: storages that may wait on the host where they are idle.
    """

    def __init__(self, evaluator: Evaluator, host: HostSpace) -> None:
        self.evaluator, self.host = evaluator, host
        self.movable = host.movable(evaluator.problem)
        self._touched_by: dict[int, list[int]] = {}
        for storage in self.movable:
            for node in evaluator.problem.roles[storage]:
                self._touched_by.setdefault(node, []).append(storage)
        self._row_of: dict[GapKey, int] = {}
        self._rows_of: dict[int, list[int]] = {}
        self._rows: Ints = np.zeros((len(self.movable) + 1, _COLUMNS), dtype=np.int64)
        self._is_there: Flags = np.zeros(len(self._rows), dtype=bool)
        self._seen: Sequence[list[int] | None] = []
        self._order: Ints | None = None
        self._start: Ints = np.zeros(0, dtype=np.int64)
        self._end: Ints = np.zeros(0, dtype=np.int64)
        self._is_open: Flags = np.zeros(0, dtype=bool)

    def all(self) -> list[IdleGap]:
        """Gaps that may be filled and those around a step, as they begin."""
        self._refresh()
        found = [*self.gaps(np.flatnonzero(self._is_open).tolist()), *self.between()]
        return sorted(found, key=IdleGap.as_they_begin)

    def of(self, storage: int) -> list[IdleGap]:
        """Gaps of a storage that may be filled."""
        self._refresh()
        return self.gaps(row for row in self._rows_of.get(storage, ()) if self._is_open[row])

    def has(self, key: GapKey) -> bool:
        """Whether the sequence has a gap that may be filled."""
        self._refresh()
        row = self._row_of.get(key)
        return row is not None and bool(self._is_open[row])

    def among(self, keys: Iterable[GapKey]) -> list[IdleGap]:
        """Those of some gaps that the sequence has, as they begin."""
        self._refresh()
        rows = [row for key in keys if (row := self._row_of.get(key)) is not None]
        found = self.gaps(
            row for row, is_open in zip(rows, self._is_open[rows].tolist(), strict=True) if is_open
        )
        return sorted(found, key=IdleGap.as_they_begin)

    def between(self) -> list[IdleGap]:
        """Gaps around a step, of the storages that are on the host between two of them. O(their uses x log uses)."""
        evaluator, count = self.evaluator, len(self.evaluator.order)
        found = []
        for storage in sorted(self.host.between.intersection(self.movable)):
            nbytes = evaluator.problem.moved_bytes(storage)
            for occurrence, last, following in use_pairs(evaluator, storage, is_between=True):
                if AWAY in {last, following}:
                    start = -1 if last == AWAY else evaluator.places[last]
                    end = count if following in {TO_END, AWAY} else evaluator.places[following]
                    found.append(IdleGap(storage, occurrence, last, following, start, end, nbytes))
        return found

    def across(self, first: int, last: int, without: Iterable[GapKey]) -> tuple[Ints, Ints, Ints, Ints]:
        """Gaps beside some, inside of which lies one of the positions between two; as they begin.

        O(gaps of the sequence + gaps found x log gaps found).

        Returns:
            The rows of the gaps, for `gaps`, their starts, their ends and their bytes.
        """
        self._refresh()
        wanted: Flags = self._is_open & (self._start < last) & (self._end > first)
        wanted[[row for key in without if (row := self._row_of.get(key)) is not None]] = False
        rows = np.flatnonzero(wanted)
        table = self._rows[rows]
        start = self._start[rows]
        by_begin = np.lexsort((table[:, _OCCURRENCE], table[:, _STORAGE], start))
        rows = rows[by_begin]
        return rows, self._start[rows], self._end[rows], self._rows[rows, _BYTES]

    def keys(self, rows: Sequence[int]) -> set[GapKey]:
        """Keys of the gaps in some rows."""
        found = self._rows[np.array(rows, dtype=np.int64)][:, [_STORAGE, _LAST, _FOLLOWING]]
        return {(storage, last, following) for storage, last, following in found.tolist()}

    def gaps(self, rows: Iterable[int]) -> list[IdleGap]:
        """The gaps in some rows, in the order of these."""
        wanted = [*rows]
        columns = zip(
            self._rows[wanted].tolist(), self._start[wanted].tolist(), self._end[wanted].tolist(), strict=True
        )
        return [
            IdleGap(storage, occurrence, last, following, start, end, nbytes)
            for (storage, occurrence, last, following, nbytes), start, end in columns
        ]

    def _refresh(self) -> None:
        """Have the gaps of the sequence as it is. O(gaps), and O(uses x log uses) for storages whose users changed."""
        evaluator = self.evaluator
        order = evaluator.order
        if self._order is order:
            return
        for storage in self._changed(order):
            is_between = storage in self.host.between
            pairs = use_pairs(evaluator, storage, is_between=is_between)
            self._replace(storage, [pair for pair in pairs if AWAY not in pair[1:]])
        self._seen, self._order = evaluator.executions[:], order
        length, position = len(order), evaluator.position
        used = self._rows[: len(self._row_of)]
        # Executions of rows that are not there may be gone; what is read for them is not looked at.
        self._start = position[used[:, _LAST]]
        is_to_end = used[:, _FOLLOWING] == TO_END
        self._end = np.where(is_to_end, length, position[used[:, _FOLLOWING]])
        # A load begins before an operation, so a gap to the end has one at least for that.
        is_idle: Flags = self._end - self._start > np.where(is_to_end, 2, 1)
        may_fill = self.host.may_fill(evaluator, self._start, self._end)
        self._is_open = self._is_there[: len(used)] & is_idle & may_fill

    def _changed(self, order: Ints) -> Iterable[int]:
        """Storages that other executions touch than before."""
        if self._order is None:
            return self.movable
        # These lists are replaced, never changed.
        changed = compress(count(), map(is_not, self._seen, self.evaluator.executions))
        found = dict.fromkeys(storage for node in changed for storage in self._touched_by.get(node, ()))
        if self._order[0] != order[0]:
            # The state of a step is there from the first execution on.
            state = self.evaluator.problem.state_bytes
            found.update(dict.fromkeys(storage for storage in self.movable if state[storage]))
        return found

    def _replace(self, storage: int, pairs: list[UsePair]) -> None:
        """Have these pairs of uses of a storage, and no others, in the rows."""
        self._is_there[self._rows_of.get(storage, [])] = False
        rows = []
        for occurrence, last, following in pairs:
            row = self._row_of.setdefault((storage, last, following), len(self._row_of))
            if row >= len(self._rows):
                self._rows = np.concatenate((self._rows, np.zeros_like(self._rows)))
                self._is_there = np.concatenate((self._is_there, np.zeros_like(self._is_there)))
            rows.append(row)
            nbytes = self.evaluator.problem.moved_bytes(storage)
            self._rows[row] = storage, occurrence, last, following, nbytes
        self._is_there[rows] = True
        self._rows_of[storage] = rows
