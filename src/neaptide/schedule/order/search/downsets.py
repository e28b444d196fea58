"""Searches over downsets with free moves: exact, best first by the bottleneck so far; and a beam, quick and often good."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Final, TypeAlias

from neaptide.outcome import LimitGuard
from neaptide.schedule.order.search.lattice import Lattice, Ready, SearchState, close

WIDE: Final = 128
"""Ready ops beyond which children are not closed when they are made: too many are never looked at."""


_Trail: TypeAlias = tuple[Any, tuple[int, ...]] | None
"""Ops placed last, after those before."""


class SearchEnd(StrEnum):
    """How a search stands: it has an order with the lowest peak, there is none below its upper limit, or neither."""

    FOUND = "found"
    NONE_BELOW = "none_below"
    OPEN = "open"


class DownsetSearch:
    """Minimax best-first search over the downsets of a problem, in one direction; can be continued.

    States are expanded by (lowest bottleneck, most ops done, fewest bytes), so the level of the search, which is a
    lower bound, never falls, and no state above the optimum is ever expanded. Serenity's downset dynamic program
    (Ahn et al., MLSys 2020) visits the same lattice without levels and free moves.

    Attributes:
        upper_bytes: may be lowered between two calls of `advance`.
        placed: ops in the order in which they are placed, when there is a way with all hills below `upper_bytes`.
    """

    def __init__(
        self,
        lattice: Lattice,
        *,
        lower_bytes: int,
        upper_bytes: int,
        start: SearchState | None = None,
        goal_bytes: int | None = None,
    ) -> None:
        """Search from a state to another one with at most `goal_bytes`, or to the last."""
        first = lattice.first() if start is None else start
        self.lattice = lattice
        self.states = 0
        self.lower_bytes = max(lower_bytes, first.nbytes)
        self.upper_bytes = upper_bytes
        self.placed: tuple[int, ...] | None = None
        self.end = SearchEnd.OPEN
        self._start, self._goal_bytes = first.left, goal_bytes
        self._made = 0
        self._heap: list[tuple[int, int, int, int, int, Ready, _Trail]] = []
        self._level: dict[int, int] = {}  # the lowest level at which a state has been reached
        self._expanded: set[int] = set()
        self._push(self.lower_bytes, first, None)

    @property
    def order(self) -> tuple[int, ...] | None:
        """The way in program time."""
        return None if self.placed is None else self.lattice.order(self.placed)

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
            level, _, nbytes, _, left, ready, trail = heapq.heappop(self._heap)
            if left in self._expanded or self._level[left] < level:
                continue
            self.lower_bytes = max(self.lower_bytes, level)
            self._expand(level, SearchState(left, nbytes, ready, []), trail)
        return self.end

    def _expand(self, level: int, state: SearchState, trail: _Trail) -> None:
        self.states += 1
        start = state.left
        self._expanded.add(start)
        moves = close(self.lattice, state, level)
        if state.left != start:
            known = self._level.get(state.left)
            if known is not None and (known < level or (known == level and state.left in self._expanded)):
                return
            self._level[state.left] = level
            self._expanded.add(state.left)
            trail = (trail, tuple(state.path))
        is_goal = self._goal_bytes is not None and state.nbytes <= self._goal_bytes
        if not state.left or (is_goal and state.left != self._start):
            self.placed = _placed(trail)
            self.end = SearchEnd.FOUND
            return
        for hill, following, op in moves:
            reached = max(level, hill)
            left = state.left & ~(1 << op)
            if reached >= self.upper_bytes or self._level.get(left, reached + 1) <= reached:
                continue
            ready = tuple(x for x in state.ready if x != op) + tuple(self.lattice.enabled(left, op))
            child = SearchState(left, following, ready, [op])
            # It will be expanded at this level, if at all: merge it with its like now.
            if reached == level and len(ready) <= WIDE:
                close(self.lattice, child, level, runs=False)
                if self._level.get(child.left, reached + 1) <= reached:
                    continue
            self._push(reached, child, (trail, tuple(child.path)))

    def _push(self, level: int, state: SearchState, trail: _Trail) -> None:
        self._made += 1
        left = state.left
        self._level[left] = level
        heapq.heappush(
            self._heap, (level, left.bit_count(), state.nbytes, self._made, left, state.ready, trail)
        )


def search_both_ways(
    lattices: Iterable[Lattice], *, lower_bytes: int, upper_bytes: int, guard: LimitGuard, states: int
) -> DownsetSearch:
    """A search in each direction until one comes to an end; gives the last one, whose bound holds for all of them."""
    for lattice in lattices:
        search = DownsetSearch(lattice, lower_bytes=lower_bytes, upper_bytes=upper_bytes)
        if search.advance(guard, states) is not SearchEnd.OPEN:
            break
        lower_bytes = search.lower_bytes
    return search


def _placed(trail: _Trail) -> tuple[int, ...]:
    found: list[tuple[int, ...]] = []
    while trail is not None:
        trail, path = trail
        found.append(path)
    return tuple(op for path in reversed(found) for op in path)


def beam_order(
    lattice: Lattice, width: int, *, level: int, upper_bytes: int, guard: LimitGuard
) -> tuple[int, ...] | None:
    """The best order that a beam finds with a peak below `upper_bytes`; one unit of work per state.

    `width` states are kept from one branching to the next, by lowest peak so far, then fewest bytes. Free moves are
    made up to `level`, a lower bound of the peak, which is what makes a narrow beam good.
    """
    reached_at: dict[int, int] = {}  # lowest peak on a way to a state
    first = lattice.first()
    beam: list[tuple[int, int, int, Ready, _Trail]] = [
        (max(level, first.nbytes), first.nbytes, first.left, first.ready, None)
    ]
    best: tuple[int, ...] | None = None
    while beam:
        following: dict[int, tuple[int, int, int, Ready, _Trail]] = {}
        for peak, nbytes, left, ready, trail in beam:
            if guard.exhausted() is not None or guard.check_now() is not None:
                return best
            state = SearchState(left, nbytes, ready, [])
            moves = close(lattice, state, peak)
            if state.left != left:
                if reached_at.get(state.left, upper_bytes) <= peak:
                    continue
                reached_at[state.left] = peak
                trail = (trail, tuple(state.path))  # noqa: PLW2901 - it grows with its state
            if not state.left:
                if peak < upper_bytes:
                    upper_bytes = peak
                    best = lattice.order(_placed(trail))
                continue
            for hill, after, op in moves:
                reached = max(peak, hill)
                then = state.left & ~(1 << op)
                if reached_at.get(then, upper_bytes) <= reached:
                    continue
                reached_at[then] = reached
                now_ready = tuple(x for x in state.ready if x != op) + tuple(lattice.enabled(then, op))
                following[then] = (reached, after, then, now_ready, (trail, (op,)))
        beam = sorted(following.values(), key=lambda entry: entry[:3])[:width]
    return best
