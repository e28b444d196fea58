"""Dives: layouts of large strips from the bottom up, without going back.

The skyline is a linked list of runs of equal floor, the valleys wait in a heap, so a placement costs what it touches:
a few set operations on bit masks. Each pass ends with a layout, however far it exceeds the aim. What was still to be
placed over the sections that exceeded it most comes earlier in the next pass (squeaky wheel, Joslin and Clements
1999), and keys get a little noise.
"""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass
from typing import Final

import numpy as np

from neaptide.layout.exact.strip import Strip
from neaptide.layout.problem import Ints
from neaptide.outcome import LimitGuard

_WALL: Final = 1 << 80
_MOST_BITS: Final = 3_000_000_000
"""Rectangles times sections: two tables of bit masks of that many bits, at most 750 MB."""
_DIVES: Final = 12
_NOISE: Final = 0.1  # keys of later passes are multiplied by 1 +- this
_BOOST: Final = 1.5  # keys of what was to blame for an excess are multiplied by this


@dataclass(frozen=True, slots=True)
class DiveResult:
    """The best layout of some passes."""

    # In units; None when the strip is too large for this method, or no pass ended.
    offsets: tuple[int, ...] | None
    arena_bytes: int | None
    placed: int  # rectangles placed by all passes together


def dive(
    strip: Strip, aim_bytes: int, guard: LimitGuard, *, seed: int = 0, dives: int = _DIVES
) -> DiveResult:
    """The best of some passes; ends early when one meets the aim. O(n) set operations of n bits for each pass."""
    if len(strip) * strip.sections > _MOST_BITS or not len(strip):
        return DiveResult(None, None, 0)
    rng = random.Random(seed)  # noqa: S311 - a reproducible stream, no secret
    table = _Table(strip, aim_bytes // strip.unit + 1)
    widths = table.lasts - table.firsts
    sizes = table.sizes.astype(np.float64)
    bases = (widths.astype(np.float64), widths * sizes, table.contention(), sizes)
    boosts = [np.ones(len(strip)) for _ in bases]
    best: list[int] | None = None
    arena: int | None = None
    placed = 0
    for number in range(dives):
        which = number % len(bases)
        key = bases[which] * boosts[which]
        if number >= len(bases):
            key = key * [1 + rng.uniform(-_NOISE, _NOISE) for _ in range(len(strip))]
        order = np.lexsort((np.arange(len(strip)), -table.sizes, -widths, -key))
        found = table.descend(order, guard)
        placed += len(strip)
        if found is None:
            break
        offsets, blamed = found
        height = strip.arena_bytes(offsets)
        if arena is None or height < arena:
            best, arena = offsets, height
        if arena <= aim_bytes:
            break
        boosts[which][blamed] *= _BOOST
    return DiveResult(None if best is None else tuple(best), arena, placed)


class _Table:
    """What all passes over a strip share."""

    def __init__(self, strip: Strip, aim: int) -> None:
        self.firsts, self.lasts = np.array(strip.firsts), np.array(strip.lasts)
        self.sizes = np.array(strip.sizes, dtype=np.int64)
        self.totals = np.array(strip.totals(), dtype=np.int64)
        self.count = len(strip)
        self.sections = strip.sections
        self.aim = aim

    def contention(self) -> Ints:
        """By rectangle, the most units live during its life."""
        return np.array(
            [self.totals[a:b].max() for a, b in zip(self.firsts, self.lasts, strict=True)], dtype=np.float64
        )

    def descend(self, order: Ints, guard: LimitGuard) -> tuple[list[int], Ints] | None:
        """One pass: offsets, and the rectangles to blame for the excess; None when the guard stops it."""
        firsts, lasts = self.firsts[order].tolist(), self.lasts[order].tolist()
        sizes = self.sizes[order].tolist()
        begin, end = [0] * (self.sections + 1), [0] * (self.sections + 1)
        for index, (first, last) in enumerate(zip(firsts, lasts, strict=True)):
            begin[first] |= 1 << index
            end[last] |= 1 << index
        for section in range(self.sections - 1, -1, -1):
            begin[section] |= begin[section + 1]
        for section in range(1, self.sections + 1):
            end[section] |= end[section - 1]
        skyline = _Skyline(self.sections)
        left = self.totals.copy()
        unplaced = (1 << self.count) - 1
        lows = [0] * self.count
        worst, blamed = self.aim, 0
        while (run := skyline.lowest()) is not None:
            first, last, floor = skyline.begins[run], skyline.ends[run], skyline.floors[run]
            found = unplaced & begin[first] & end[last]
            if not found:
                lip = skyline.lip(run)
                if lip != _WALL:
                    excess = left[first:last] + lip
                    at = int(excess.argmax())
                    if excess[at] > worst:
                        worst = int(excess[at])
                        section = first + at
                        blamed = unplaced & ~begin[section + 1] & ~end[section]
                skyline.raise_to(run, lip)
                continue
            if guard.exhausted() is not None:
                return None
            index = (found & -found).bit_length() - 1
            unplaced ^= 1 << index
            lows[index] = floor
            left[firsts[index] : lasts[index]] -= sizes[index]
            skyline.place(run, firsts[index], lasts[index], floor + sizes[index])
        offsets = [0] * self.count
        for place, low in zip(order.tolist(), lows, strict=True):
            offsets[place] = low
        to_blame = [i for i in range(self.count) if blamed >> i & 1] if blamed else []
        return offsets, order[np.array(to_blame, dtype=np.int64)]


class _Skyline:
    """Runs of equal floor as a linked list between two walls, and a heap of those that may be valleys."""

    def __init__(self, sections: int) -> None:
        self.begins, self.ends, self.floors = [0, 0, sections], [0, sections, sections], [_WALL, 0, _WALL]
        self._before, self._after = [0, 0, 1], [1, 2, 2]
        self._live = [False, True, False]
        self._heap = [(0, 0, 1)]

    def lowest(self) -> int | None:
        """A valley with the lowest floor; None when all has risen to the walls. It is no longer in the heap."""
        while self._heap:
            floor, _, run = heapq.heappop(self._heap)
            is_valley = self.floors[self._before[run]] > floor < self.floors[self._after[run]]
            if self._live[run] and self.floors[run] == floor and is_valley:
                return run
        return None

    def lip(self, run: int) -> int:
        """The floor of the lower neighbour."""
        return min(self.floors[self._before[run]], self.floors[self._after[run]])

    def raise_to(self, run: int, floor: int) -> None:
        """Lift a valley to the floor of a neighbour, or to the walls."""
        self.floors[run] = floor
        self._merge(run)

    def place(self, run: int, begin: int, end: int, top: int) -> None:
        """Put something on a part of a valley."""
        first, last, floor = self.begins[run], self.ends[run], self.floors[run]
        self.begins[run], self.ends[run], self.floors[run] = begin, end, top
        if first < begin:
            self._insert(self._before[run], first, begin, floor)
        if end < last:
            self._insert(run, end, last, floor)
        self._merge(run)

    def _insert(self, before: int, begin: int, end: int, floor: int) -> None:
        run, after = len(self.floors), self._after[before]
        self.begins.append(begin)
        self.ends.append(end)
        self.floors.append(floor)
        self._live.append(True)
        self._before.append(before)
        self._after.append(after)
        self._after[before] = self._before[after] = run
        heapq.heappush(self._heap, (floor, begin, run))

    def _merge(self, run: int) -> None:
        """Join a run with neighbours of the same floor, and offer it and them as valleys."""
        floor = self.floors[run]
        for other in (self._before[run], self._after[run]):
            if self._live[other] and self.floors[other] == floor:
                self._live[other] = False
                self.begins[run] = min(self.begins[run], self.begins[other])
                self.ends[run] = max(self.ends[run], self.ends[other])
                before, after = self._before[other], self._after[other]
                self._after[before], self._before[after] = after, before
        if floor == _WALL:
            return
        for near in (self._before[run], run, self._after[run]):
            if self._live[near]:
                heapq.heappush(self._heap, (self.floors[near], self.begins[near], near))
