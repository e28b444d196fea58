"""Local search on the order of placement, in the manner of TVM's USMP hill climb."""

from __future__ import annotations

import random
import threading
from typing import Final

import numpy as np
from numpy.typing import NDArray

from neaptide.layout.bounds import arena_lower_bound
from neaptide.layout.placement import Fit, Shelf, order_by, watched
from neaptide.layout.problem import ANYWHERE, Ints, LayoutProblem
from neaptide.layout.result import Layout
from neaptide.outcome import LimitGuard, Limits, Outcome
from neaptide_peers.layouts.orders import BufferKeys

ATTEMPTS: Final = 500
_MOST_WORK: Final = 25_000
_MOST_ROWS: Final = 30_000_000  # work times n: what a placement costs beside calls; together under a second
_SECOND_LEVEL: Final = 0.75  # share of swaps with a neighbour's neighbour, as in TVM
_FIRST_CHANCE: Final = 0.5  # of taking a larger arena at the first attempt; falls with their number
_LARGER_BY: Final = 50  # a larger arena is at most a fiftieth larger


def hill_climb(
    problem: LayoutProblem,
    limits: Limits | None = None,
    interrupt: threading.Event | None = None,
    *,
    attempts: int = ATTEMPTS,
) -> Outcome[Layout]:
    """Swap what was placed before the buffer that sets the arena, and keep what is not worse. Anytime.

    Buffers are placed by size with FIRST. An attempt draws a buffer at the top of the arena, one of the earlier
    placed that are live with it, and a second, or an earlier neighbour of any of its neighbours, and swaps the two
    in the order; a larger arena is kept with a chance that falls with the number of attempts. Only buffers whose
    earlier neighbours have moved are placed again. A unit of work is one such placement.
    Source: TVM `src/tir/usmp/algo/hill_climb.cc` (PR 9704), which runs 500 attempts.

    Args:
        problem: the buffers.
        limits: time, work and seed; without a work limit, as many attempts as are asked for.
        interrupt: when set, the best so far is returned.
        attempts: swaps to try.
    """
    guard = LimitGuard(limits or Limits(), interrupt)
    climb = _Climb(problem, guard)
    climb.run(attempts)
    best = Layout.of(problem, tuple(climb.best))
    return guard.finish(best, best=best.arena_bytes, bound=climb.lower)


def climb_layout(problem: LayoutProblem, guard: LimitGuard | None = None) -> Layout:
    """The hill climb as a rule: 500 attempts from seed 0, with work that ends it in a second at any size."""
    work = min(_MOST_WORK, _MOST_ROWS // max(1, len(problem)))
    time_left = None if guard is None else guard.remaining_s()
    climb = _Climb(problem, LimitGuard(Limits(time_left, work)), guard)
    climb.run(ATTEMPTS)
    return Layout.of(problem, tuple(climb.best))


class _RankedShelf(Shelf):
    """A shelf from which buffers are taken again; `rank` says by buffer when it is placed."""

    __slots__ = ("_before", "rank")

    def __init__(self, problem: LayoutProblem, rank: Ints) -> None:
        super().__init__(problem)
        self.rank = rank
        self._before: int | None = None

    def take(self, index: int) -> int:
        """Take a buffer out and return the place that it had."""
        offset = self.offsets[index]
        self.offsets[index] = ANYWHERE
        for _, _, low, _ in self._parts[index]:
            count = self._count
            at = int(self._lows[:count].searchsorted(offset + low))
            at += int((self._buffers[at:count] == index).argmax())
            for column in (self._begins, self._ends, self._lows, self._highs, self._buffers):
                column[at : count - 1] = column[at + 1 : count]
            self._count = count - 1
        return offset

    def overlapping(self, index: int) -> Ints:
        """Placed buffers that are live together with a buffer, gaps counted as live, ascending and without itself."""
        parts = self._parts[index]
        found = self._buffers[self._rows_during(parts[0][0], parts[-1][1])]
        return np.unique(found[found != index]).astype(np.int64)

    def find_among_earlier(self, index: int) -> int:
        """The lowest place beside those alone that are placed before it."""
        self._before = int(self.rank[index])
        try:
            return self.find(index, Fit.FIRST)
        finally:
            self._before = None

    def _rows_during(self, begin: int, end: int) -> NDArray[np.intp]:
        hit = super()._rows_during(begin, end)
        return hit if self._before is None else hit[self.rank[self._buffers[hit]] < self._before]


class _Climb:
    """The order, the shelf that it makes, and the best offsets so far.

    Args:
        problem: the buffers.
        guard: of the climb.
        of_start: may stop the first placement, with `RuleStopped`.
    """

    def __init__(self, problem: LayoutProblem, guard: LimitGuard, of_start: LimitGuard | None = None) -> None:
        self.problem = problem
        self.guard = guard
        self.lower = arena_lower_bound(problem)
        self.random = random.Random(guard.limits.seed)
        keys = BufferKeys.of(problem)
        order = order_by(problem, -keys.sizes, -keys.overlaps)
        fixed = [index for index in order if problem.fixed[index] != ANYWHERE]
        self.first = len(fixed)
        self.order: Ints = np.array(
            fixed + [i for i in order if problem.fixed[i] == ANYWHERE], dtype=np.int64
        )
        self.rank = np.empty(len(problem), dtype=np.int64)
        self.rank[self.order] = np.arange(len(problem))
        self.shelf = _RankedShelf(problem, self.rank)
        self.shelf.put_fixed()
        for index in watched(self.order[self.first :].tolist(), of_start):
            self.shelf.put(index, self.shelf.find(index, Fit.FIRST))
        self.tops: Ints = np.array(self.shelf.offsets, dtype=np.int64) + problem.sizes
        self.top = int(self.tops.max(initial=0))
        self.best = list(self.shelf.offsets)
        self.best_top = self.top

    def run(self, attempts: int) -> None:
        for attempt in range(1, attempts + 1):
            if self.best_top <= self.lower or self.guard.check_now() is not None:
                return
            pair = self._pair()
            if pair is None:
                continue
            chance = _FIRST_CHANCE / attempt
            limit = self.top + self.top // _LARGER_BY if self.random.random() < chance else self.top
            moved, is_kept = self._replace(*pair, limit)
            if is_kept:
                self.top = int(self.tops.max())
                if self.top < self.best_top:
                    self.best, self.best_top = list(self.shelf.offsets), self.top
            else:
                self._swap(*pair)
                for index, offset in moved.items():
                    self.shelf.take(index)
                    self._put(index, offset)
            if self.guard.exhausted(0) is not None:
                return

    def _pair(self) -> tuple[int, int] | None:
        """Two positions to swap, both of buffers that may move; None when the draw has none."""
        highest = np.flatnonzero(self.tops == self.top).tolist()
        peak = self.random.choice(highest)
        around = self.shelf.overlapping(peak)
        earlier = self._earlier(around, peak)
        if not earlier:
            return None
        first = self.random.choice(earlier)
        if self.random.random() < _SECOND_LEVEL:
            middle = self.random.choice(around.tolist())
            earlier = self._earlier(self.shelf.overlapping(middle), middle)
            if not earlier:
                return None
        second = self.random.choice(earlier)
        if first == second:
            return None
        return int(self.rank[first]), int(self.rank[second])

    def _earlier(self, around: Ints, index: int) -> list[int]:
        ranks = self.rank[around]
        found: list[int] = around[(ranks >= self.first) & (ranks < self.rank[index])].tolist()
        return found

    def _swap(self, left: int, right: int) -> None:
        self.order[left], self.order[right] = self.order[right], self.order[left]
        self.rank[self.order[left]] = left
        self.rank[self.order[right]] = right

    def _put(self, index: int, offset: int) -> None:
        self.shelf.put(index, offset)
        self.tops[index] = offset + self.problem.sizes[index]

    def _replace(self, left: int, right: int, limit: int) -> tuple[dict[int, int], bool]:
        """Swap two positions and place again what that can move; stops above a limit.

        Returns:
            Where moved buffers were before, and whether the arena is within the limit.
        """
        self._swap(left, right)
        position = min(left, right)
        starts, ends = self.problem.starts[self.order], self.problem.ends[self.order]
        due = np.zeros(len(self.order), dtype=np.bool_)
        due[[left, right]] = True
        for index in (int(self.order[left]), int(self.order[right])):
            due |= (starts < self.problem.ends[index]) & (ends > self.problem.starts[index])
        moved: dict[int, int] = {}
        while True:
            ahead = due[position:]
            step = int(ahead.argmax()) if len(ahead) else 0
            if not len(ahead) or not ahead[step]:
                return moved, True
            position += step
            if self.guard.exhausted() is not None:
                return moved, False
            index = int(self.order[position])
            position += 1
            offset = self.shelf.find_among_earlier(index)
            if offset == self.shelf.offsets[index]:
                continue
            moved[index] = self.shelf.take(index)
            self._put(index, offset)
            if self.tops[index] > limit:
                return moved, False
            due |= (starts < self.problem.ends[index]) & (ends > self.problem.starts[index])
