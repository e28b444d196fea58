"""Searches over downsets with free moves: exact, best first by the bottleneck so far; and a beam, quick and often good."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from neaptide.outcome import LimitGuard
from neaptide.schedule.order.search.lattice import Lattice, Ready, SearchState, close

WIDE: Final = 128
"""Ready ops beyond which children are not closed when they are made: too many are never looked at."""


class SearchEnd(StrEnum):
    """How a search stands: it has an order with the lowest peak, there is none below its upper limit, or neither."""

    FOUND = "found"
    NONE_BELOW = "none_below"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class _Way:
    """How a state was first reached at a level."""

    level: int
    parent: int
    path: tuple[int, ...]


class DownsetSearch:
    """Minimax best-first search over the downsets of a problem, in one direction; can be continued.

    States are expanded by (lowest bottleneck, most ops done, fewest bytes), so the level of the search, which is a
    lower bound, never falls, and no state above the optimum is ever expanded. Serenity's downset dynamic program
    (Ahn et al., MLSys 2020) visits the same lattice without levels and free moves.

    Attributes:
        upper_bytes: may be lowered between two calls of `advance`.
        order: an order with the lowest peak, when there is one below `upper_bytes`.
    """

    def __init__(self, lattice: Lattice, *, lower_bytes: int, upper_bytes: int, runs: bool = True) -> None:
        self.lattice = lattice
        self.states = 0
        self.lower_bytes = max(lower_bytes, lattice.start_bytes)
        self.upper_bytes = upper_bytes
        self.order: tuple[int, ...] | None = None
        self.end = SearchEnd.OPEN
        self._runs = runs
        self._made = 0
        self._heap: list[tuple[int, int, int, int, int, Ready]] = []
        self._ways: dict[int, _Way] = {lattice.left: _Way(self.lower_bytes, -1, ())}
        self._expanded: set[int] = set()
        self._push(self.lower_bytes, SearchState(lattice.left, lattice.start_bytes, lattice.ready, []))

    def advance(self, guard: LimitGuard, states: int | None = None) -> SearchEnd:
        """Expand states until the search ends, the guard says stop, or `states` of them are done."""
        stop_at = None if states is None else self.states + states
        while self.end is SearchEnd.OPEN:
            if not self._heap or self._heap[0][0] >= self.upper_bytes:
                self.lower_bytes = self.upper_bytes
                self.end = SearchEnd.NONE_BELOW
                break
            if (stop_at is not None and self.states >= stop_at) or guard.exhausted() is not None:
                break
            if guard.check_now() is not None:  # one state of a wide problem may take seconds
                break
            level, _, nbytes, _, left, ready = heapq.heappop(self._heap)
            if left in self._expanded or self._ways[left].level < level:
                continue
            self.lower_bytes = max(self.lower_bytes, level)
            self._expand(level, SearchState(left, nbytes, ready, []))
        return self.end

    def _expand(self, level: int, state: SearchState) -> None:
        self.states += 1
        start = state.left
        self._expanded.add(start)
        moves = close(self.lattice, state, level, runs=self._runs)
        if state.left != start:
            if not self._is_news(level, start, state):
                return
            self._expanded.add(state.left)
        if not state.left:
            self._finish()
            return
        for hill, following, op in moves:
            reached = max(level, hill)
            if reached >= self.upper_bytes:
                continue
            left = state.left & ~(1 << op)
            known = self._ways.get(left)
            if known is not None and known.level <= reached:
                continue
            ready = tuple(x for x in state.ready if x != op) + tuple(self.lattice.enabled(left, op))
            child = SearchState(left, following, ready, [op])
            if (
                reached == level and len(ready) <= WIDE
            ):  # it will be expanded at this level, if at all: merge it with its like now
                close(self.lattice, child, level, runs=False)
                known = self._ways.get(child.left)
                if known is not None and known.level <= reached:
                    continue
            self._ways[child.left] = _Way(reached, state.left, tuple(child.path))
            self._push(reached, child)

    def _is_news(self, level: int, parent: int, state: SearchState) -> bool:
        known = self._ways.get(state.left)
        if known is not None and known.level <= level and state.left in self._expanded:
            return False
        if known is None or known.level > level:
            self._ways[state.left] = _Way(level, parent, tuple(state.path))
        return True

    def _push(self, level: int, state: SearchState) -> None:
        self._made += 1
        left = state.left
        heapq.heappush(self._heap, (level, left.bit_count(), state.nbytes, self._made, left, state.ready))

    def _finish(self) -> None:
        placed: list[tuple[int, ...]] = []
        at = 0
        while (way := self._ways[at]).parent >= 0:
            placed.append(way.path)
            at = way.parent
        self.order = self.lattice.order([op for path in reversed(placed) for op in path])
        self.end = SearchEnd.FOUND


def beam_order(
    lattice: Lattice, width: int, *, level: int, upper_bytes: int, guard: LimitGuard
) -> tuple[int, ...] | None:
    """The best order that a beam finds with a peak below `upper_bytes`; one unit of work per state.

    `width` states are kept from one branching to the next, by lowest peak so far, then fewest bytes. Free moves are
    made up to `level`, a lower bound of the peak, which is what makes a narrow beam good.
    """
    parents: dict[int, tuple[int, tuple[int, ...]]] = {}
    reached_at: dict[int, int] = {}  # lowest peak on a way to a state; ways of `parents` keep to it
    beam: list[tuple[int, int, int, Ready]] = [
        (max(level, lattice.start_bytes), lattice.start_bytes, lattice.left, lattice.ready)
    ]
    best: tuple[int, ...] | None = None
    while beam:
        following: dict[int, tuple[int, int, int, Ready]] = {}
        for peak, nbytes, left, ready in beam:
            if guard.exhausted() is not None or guard.check_now() is not None:
                return best
            state = SearchState(left, nbytes, ready, [])
            moves = close(lattice, state, peak)
            if state.left != left:
                if reached_at.get(state.left, upper_bytes) <= peak:
                    continue
                reached_at[state.left] = peak
                parents[state.left] = (left, tuple(state.path))
            if not state.left:
                if peak < upper_bytes:
                    upper_bytes = peak
                    best = _trace(lattice, parents)
                continue
            for hill, after, op in moves:
                reached = max(peak, hill)
                then = state.left & ~(1 << op)
                if reached_at.get(then, upper_bytes) <= reached:
                    continue
                reached_at[then] = reached
                now_ready = tuple(x for x in state.ready if x != op) + tuple(lattice.enabled(then, op))
                following[then] = (reached, after, then, now_ready)
                parents[then] = (state.left, (op,))
        beam = sorted(following.values(), key=lambda entry: entry[:3])[:width]
    return best


def _trace(lattice: Lattice, parents: dict[int, tuple[int, tuple[int, ...]]]) -> tuple[int, ...]:
    placed: list[tuple[int, ...]] = []
    at = 0
    while at != lattice.left:
        at, path = parents[at]
        placed.append(path)
    return lattice.order([op for path in reversed(placed) for op in path])
