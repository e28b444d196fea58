"""A complete search in the manner of MiniMalloc (Moffitt, ASPLOS 2023): buffers in order of their offsets.

In a layout in which nothing can be pushed down, each rectangle lies at the lowest offset above those that come before
it in order of (offset, rank). So a node places one of the unplaced at its lowest offset, never going down in that
order. It is cut off when some section cannot hold what it still has to, counted from its floor or from the current
offset, whichever is higher; when the rectangle would leave a gap that another fits wholly into; and, once one without
unplaced neighbours has failed, its siblings are not tried.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from itertools import cycle
from typing import Final

import numpy as np
from numpy.typing import NDArray

from neaptide.layout.bounds import arena_lower_bound
from neaptide.layout.exact.strip import Decision, Strip, Verdict, is_plain
from neaptide.layout.placement import place_by_size
from neaptide.layout.problem import Ints, LayoutProblem
from neaptide.layout.result import Layout
from neaptide.outcome import LimitGuard, Limits, Outcome

_FAR: Final = 1 << 62
_MOST_RECTANGLES: Final = 5_000  # all pairs are held
_Mask = NDArray[np.bool_]


def find_layout(
    problem: LayoutProblem,
    limits: Limits | None = None,
    interrupt: threading.Event | None = None,
    *,
    capacity_bytes: int | None = None,
) -> Outcome[Layout]:
    """The smallest arena by bisection, or a layout within a capacity; begins with the rule that places by size.

    Args:
        problem: searched where it is of whole rectangles at one alignment, of 5,000 at most.
        limits: of time and of work; a unit is a node.
        interrupt: when set, the best so far is returned.
        capacity_bytes: of the arena; None for the smallest arena.
    """
    guard = LimitGuard(limits or Limits(), interrupt)
    best, lower = place_by_size(problem), arena_lower_bound(problem)
    middle = lower if capacity_bytes is None else capacity_bytes
    detail = ""
    if len(problem) > _MOST_RECTANGLES or not (len(problem) and is_plain(problem)):
        detail = f"searched are up to {_MOST_RECTANGLES} whole rectangles at one alignment"
    else:
        strip = Strip.of(problem.starts, problem.ends, problem.sizes, int(problem.alignments[0]))
        while lower <= middle < best.arena_bytes:
            found = CanonicalSearch(strip, strip.limits(middle)).decide(guard)
            if found.offsets is not None:
                best = Layout.of(problem, tuple(offset * strip.unit for offset in found.offsets))
            elif found.verdict is Verdict.REFUTED:
                lower = strip.arena_above(middle)
            else:
                break
            if capacity_bytes is None:
                middle = (lower + best.arena_bytes) // 2
    if capacity_bytes is not None and best.arena_bytes > capacity_bytes:
        return guard.finish(None, complete=lower > capacity_bytes, bound=lower, detail=detail)
    return guard.finish(best, best=best.arena_bytes, bound=lower, detail=detail)


@dataclass(slots=True)
class _Level:
    """A node: what is unplaced, its lowest offsets, what was placed to get here, and what can come next."""

    lowest: Ints
    unplaced: _Mask
    floors: Ints
    left: Ints
    placed: int
    offset: int
    choices: list[int]


class CanonicalSearch:
    """Decides whether a strip fits below limits.

    Args:
        strip: what is to be packed; at least one rectangle.
        limits: by rectangle, the highest top.
    """

    def __init__(self, strip: Strip, limits: list[int]) -> None:
        self._firsts, self._lasts = np.array(strip.firsts), np.array(strip.lasts)
        self._sizes = np.array(strip.sizes, dtype=np.int64)
        self._limits = np.array(limits, dtype=np.int64)
        self._meets = (self._firsts[:, None] < self._lasts) & (self._lasts[:, None] > self._firsts)
        np.fill_diagonal(self._meets, val=False)
        self._totals = np.array(strip.totals(), dtype=np.int64)
        over = [np.flatnonzero((self._firsts <= s) & (s < self._lasts)) for s in range(strip.sections)]
        self._over = np.concatenate(over)
        self._over_starts = np.cumsum([0, *(len(found) for found in over[:-1])])
        self._caps = np.maximum.reduceat(self._limits[self._over], self._over_starts)

    def decide(self, guard: LimitGuard, max_nodes: int | None = None) -> Decision:
        """Round-robin over three static ranks, with node limits that double from 2n. Complete.

        Args:
            guard: a unit of work is a node.
            max_nodes: of all runs together.
        """
        width = self._lasts - self._firsts
        peak = np.array(
            [self._totals[a:b].max() for a, b in zip(self._firsts, self._lasts, strict=True)], dtype=np.int64
        )
        area = width * self._sizes.astype(np.float64)
        ranks = [
            np.lexsort((-peak, -area, -width)),
            np.lexsort((-width, -area, -peak)),
            np.lexsort((-area, -width, -peak)),
        ]
        most, nodes = 2 * len(width), 0
        for number, order in enumerate(cycle(ranks)):
            limit = most if max_nodes is None else min(most, max_nodes - nodes)
            rank = np.empty(len(order), dtype=np.int64)
            rank[order] = np.arange(len(order))
            decision = self._run(guard, rank, limit)
            nodes += decision.nodes
            done = guard.exhausted(0) is not None or (max_nodes is not None and nodes >= max_nodes)
            if decision.verdict is not Verdict.OUT_OF_BUDGET or done:
                return Decision(decision.verdict, decision.offsets, nodes)
            most *= 2 if number % len(ranks) == len(ranks) - 1 else 1
        raise AssertionError("the ranks never end")

    def _run(self, guard: LimitGuard, rank: Ints, max_nodes: int) -> Decision:
        if (self._totals > self._caps).any():
            return Decision(Verdict.REFUTED, None, 0)
        count = len(rank)
        root = _Level(
            np.zeros(count, dtype=np.int64),
            np.ones(count, dtype=bool),
            np.zeros(len(self._totals), dtype=np.int64),
            self._totals,
            -1,
            0,
            [],
        )
        root.choices = self._choices(root, rank, -1)
        path, nodes = [root], 0
        while path:
            here = path[-1]
            if not here.choices:
                path.pop()
                # Nothing unplaced touches the one that was placed here: its place is not to blame.
                if path and not (self._meets[here.placed] & here.unplaced).any():
                    path[-1].choices.clear()
                continue
            nodes += 1
            if nodes > max_nodes or guard.exhausted() is not None:
                return Decision(Verdict.OUT_OF_BUDGET, None, nodes)
            below = self._place(here, here.choices.pop())
            if below is None:
                continue
            path.append(below)
            if not below.unplaced.any():
                offsets = [0] * count
                for level in path[1:]:
                    offsets[level.placed] = level.offset
                return Decision(Verdict.FITS, tuple(offsets), nodes)
            below.choices = self._choices(below, rank, int(rank[below.placed]))
        return Decision(Verdict.REFUTED, None, nodes)

    def _choices(self, level: _Level, rank: Ints, last_rank: int) -> list[int]:
        """What may come next, the first to be tried last."""
        lowest = np.where(level.unplaced, level.lowest, _FAR)
        # One that begins where another fits wholly below it would leave a gap for nothing.
        ceiling = int((lowest + self._sizes)[level.unplaced].min())
        is_later = (lowest > level.offset) | ((lowest == level.offset) & (rank > last_rank))
        found = np.flatnonzero(level.unplaced & is_later & (lowest < ceiling))
        ordered = found[np.lexsort((rank[found], lowest[found]))]
        return [int(index) for index in ordered[::-1]]

    def _place(self, level: _Level, index: int) -> _Level | None:
        """The node after placing one at its lowest offset; None when something can no longer fit."""
        offset = int(level.lowest[index])
        top = offset + int(self._sizes[index])
        if top > self._limits[index]:
            return None
        unplaced = level.unplaced.copy()
        unplaced[index] = False
        lowest = np.where(self._meets[index] & unplaced, np.maximum(level.lowest, top), level.lowest)
        if ((lowest + self._sizes > self._limits) & unplaced).any():
            return None
        first, last = self._firsts[index], self._lasts[index]
        floors, left = level.floors.copy(), level.left.copy()
        np.maximum(floors[first:last], top, out=floors[first:last])
        left[first:last] -= self._sizes[index]
        waiting = np.where(unplaced, np.maximum(lowest, offset), _FAR)
        reachable = np.minimum.reduceat(waiting[self._over], self._over_starts)
        is_open = left > 0
        np.maximum(floors, reachable, out=floors, where=is_open)
        if ((floors + left > self._caps) & is_open).any():
            return None
        return _Level(lowest, unplaced, floors, left, index, offset, [])
