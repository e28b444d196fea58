"""Inductor's memory pool as a placement rule, with its top slots as arrays so that thousands of them are no matter."""

from __future__ import annotations

import numpy as np

from neaptide.layout.placement import watched
from neaptide.layout.problem import Ints, LayoutProblem
from neaptide.layout.result import Layout
from neaptide.outcome import LimitGuard
from neaptide_peers.layouts.end_to_end import lay_end_to_end
from neaptide_peers.layouts.temporal_splits import Content, Slot, fill_slot, find_slot, join_slots


def place_inductor(problem: LayoutProblem, guard: LimitGuard | None = None) -> Layout:
    """By size descending, then by life, into one pool that grows at its end. O(n^2), vectorised.

    Gaps count as in use; the pool lies above all fixed buffers. Sizes are rounded up to the largest alignment, as
    the pool has only one. Source: pytorch `torch/_inductor/codegen/memory_planning.py`, `AllocationPool`.
    """
    alignment = int(problem.alignments.max(initial=1))
    sizes = -(-problem.sizes // alignment) * alignment
    inner = [0] * len(problem)
    pool = _Pool(problem)
    for index in watched(np.lexsort((problem.starts - problem.ends, -sizes)).tolist(), guard):
        if problem.buffers[index].offset is None:
            inner[index] = pool.add(index, int(sizes[index]))
    return lay_end_to_end(problem, [0] * len(problem), inner, [pool.size])


class _Pool:
    """A row of slots. Each that was added at the end has, in Inductor, a split of all before it beside it.

    So a buffer that meets nothing in two or more slots from the bottom goes beside all of these together; otherwise
    the slots are tried in order. One comparison with all buffers in the pool tells what it meets.
    """

    def __init__(self, problem: LayoutProblem) -> None:
        count = len(problem)
        self.size = 0
        self.slots: list[Slot] = []
        self.sizes: Ints = np.zeros(count, dtype=np.int64)  # by slot
        # By number of a content: the slot it lies in, and the size of its larger side, -1 for a buffer.
        self.contents: list[Content] = []
        self.slot_of: Ints = np.zeros(2 * count, dtype=np.int64)
        self.room: Ints = np.zeros(2 * count, dtype=np.int64)
        # Times are ranks among all starts and ends, so that a comparison with every buffer reads few bytes.
        points = np.unique(np.concatenate([problem.starts, problem.ends]))
        self.begin_of: list[int] = np.searchsorted(points, problem.starts).tolist()
        self.end_of: list[int] = np.searchsorted(points, problem.ends).tolist()
        # By turn: the buffer, its lifetime and first byte, and the content of a top slot that holds it.
        self.buffers: list[Content] = []
        self.turns = 0
        self.starts = np.zeros(count, dtype=np.int32)
        self.ends = np.zeros(count, dtype=np.int32)
        self.offsets: Ints = np.zeros(count, dtype=np.int64)
        self.content_of: Ints = np.zeros(count, dtype=np.int64)

    def add(self, index: int, size: int) -> int:
        """Place the next smaller buffer and return its offset."""
        start, end = self.begin_of[index], self.end_of[index]
        slot, number = self._find(start, end, size)
        if slot is None:
            slot = Slot(self.size, size)
            self.slots.append(slot)
        added = fill_slot(slot, start, end, size)
        if slot.side_of is None:
            at = len(self.slots) - 1 if slot is self.slots[-1] else self.slots.index(slot)
            number = added.number = self._register(added, at)
        last = self.slots[-1]
        if last.size != self.sizes[len(self.slots) - 1]:
            self.sizes[len(self.slots) - 1] = last.size
            for content in last.users:
                self.contents[content.number] = content
                self.room[content.number] = _room(content)
        self.size = last.offset + last.size
        self.starts[self.turns], self.ends[self.turns] = start, end
        self.offsets[self.turns] = slot.offset
        self.content_of[self.turns] = number
        self.buffers.append(added if added.sides is None else added.sides[0].users[0])
        self.turns += 1
        return slot.offset

    def _find(self, start: int, end: int, size: int) -> tuple[Slot | None, int]:
        """The slot that takes a buffer, and the number of the content of a top slot that it is in."""
        turns, count = self.turns, len(self.slots)
        live = np.flatnonzero((self.starts[:turns] < end) & (self.ends[:turns] > start))
        is_met = np.zeros(len(self.contents), dtype=np.bool_)
        is_met[self.content_of[live]] = True
        met = np.flatnonzero(is_met)
        where = self.slot_of[met]
        counts = np.bincount(where, minlength=count)
        below = int(where.min(initial=count))
        if below > 1:
            self._join(below)
            return self.slots[0], 0
        free = (counts == 0) & (self.sizes[:count] >= size)
        free[-1:] |= counts[-1:] == 0
        first = int(free.argmax()) if free.any() else count
        inside = (counts[where] == 1) & (where < first) & ((self.room[met] >= size) | (where == count - 1))
        met, where = met[inside], where[inside]
        in_order = where.argsort()
        for number, at in zip(met[in_order].tolist(), where[in_order].tolist(), strict=True):
            lowest = live[self.offsets[live] == self.slots[at].offset]
            buffer = self.buffers[lowest[0]] if len(lowest) else None
            slot = find_slot(self.contents[number], buffer, start, end, size, is_last=at == count - 1)
            if slot is not None:
                return slot, number
        return (self.slots[first] if first < count else None), 0

    def _join(self, count: int) -> None:
        """Make one slot of the lowest ones."""
        joined = self.slots[0]
        for slot in self.slots[1:count]:
            joined = join_slots(joined, slot)
        inside = self.slot_of[self.content_of[: self.turns]] < count
        numbers = len(self.contents)
        self.slot_of[:numbers] = np.maximum(self.slot_of[:numbers] - (count - 1), 0)
        self.slots[:count] = [joined]
        self.sizes[: len(self.slots)] = [slot.size for slot in self.slots]
        split = joined.users[0]
        split.number = self._register(split, 0)
        self.content_of[: self.turns][inside] = split.number

    def _register(self, content: Content, at: int) -> int:
        if len(self.contents) == len(self.room):
            self.slot_of = np.concatenate([self.slot_of, np.zeros_like(self.slot_of)])
            self.room = np.concatenate([self.room, np.zeros_like(self.room)])
        number = len(self.contents)
        self.slot_of[number], self.room[number] = at, _room(content)
        self.contents.append(content)
        return number


def _room(content: Content) -> int:
    """No slot in it is larger."""
    return -1 if content.sides is None else max(side.size for side in content.sides)
