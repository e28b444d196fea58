"""Exact search over downsets that is told about states it need not look into again."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from neaptide.outcome import LimitGuard
from neaptide.schedule.order.portfolio import FIRST_STATES
from neaptide.schedule.order.search.downsets import WIDE, SearchEnd
from neaptide.schedule.order.search.lattice import Lattice, Ready, SearchState, close

Recall: TypeAlias = Callable[[int, int], int]
"""From the ops left in a state and its bytes to a bound of the hills on every way on from it; 0 knows nothing."""

_Trail: TypeAlias = tuple[Any, tuple[int, ...]] | None  # ops placed last, after those before


class RecallingSearch:
    """Minimax best-first search as in `downsets`, with a bound for some states from elsewhere.

    Started just below a peak (`lower_bytes = upper_bytes - 1`) it decides whether any order is lower, with the free
    moves of that level from the first state on; that takes fewer states than to raise the level step by step.

    Args:
        lattice: of the problem, forwards or reversed.
        lower_bytes: where the search starts; the lowest peak if that is above it, else an order at most so high.
        upper_bytes: only orders with a peak below this are looked for.
        recall: what is known about states; never more than what is true.

    Attributes:
        states: expanded so far.
        lower_bytes: no order below `upper_bytes` has hills below this, if it was true at the start.
        order: one with a peak below `upper_bytes`, when there is one.
    """

    def __init__(
        self, lattice: Lattice, *, lower_bytes: int, upper_bytes: int, recall: Recall | None = None
    ) -> None:
        self.lattice = lattice
        self.states = 0
        self.lower_bytes = max(lower_bytes, lattice.start_bytes)
        self.upper_bytes = upper_bytes
        self.order: tuple[int, ...] | None = None
        self.end = SearchEnd.OPEN
        self._recall = recall
        self._made = 0
        self._heap: list[tuple[int, int, int, int, int, Ready, _Trail]] = []
        self._level: dict[int, int] = {}  # lowest level at which a state has been reached
        self._expanded: dict[int, tuple[int, int]] = {}  # bytes and level
        self._push(self.lower_bytes, SearchState(lattice.left, lattice.start_bytes, lattice.ready, []), None)

    def advance(self, guard: LimitGuard, states: int) -> SearchEnd:
        """Expand states until the search ends, the guard says stop, or so many more are done."""
        stop_at = self.states + states
        while self.end is SearchEnd.OPEN:
            if not self._heap or self._heap[0][0] >= self.upper_bytes:
                self.lower_bytes = self.upper_bytes
                self.end = SearchEnd.NONE_BELOW
                break
            if self.states >= stop_at or guard.exhausted() is not None or guard.check_now() is not None:
                break
            level, _, nbytes, _, left, ready, trail = heapq.heappop(self._heap)
            if left in self._expanded or self._level[left] < level:
                continue
            self.lower_bytes = max(self.lower_bytes, level)
            self._expand(level, SearchState(left, nbytes, ready, []), trail)
        return self.end

    def dead(self) -> dict[int, int]:
        """By ops left, bytes of states from which every way on has a hill of at least `lower_bytes`."""
        return {left: nbytes for left, (nbytes, level) in self._expanded.items() if level < self.lower_bytes}

    def _expand(self, level: int, state: SearchState, trail: _Trail) -> None:
        self.states += 1
        self._expanded[state.left] = (state.nbytes, level)
        start = state.left
        moves = close(self.lattice, state, level)
        if state.left != start:
            trail = (trail, tuple(state.path))
            if state.left in self._expanded:
                return
            known = self._level.get(state.left)
            if known is not None and known < level:
                return
            if self._is_known_higher(level, state, trail):
                return
            self._level[state.left] = level
            self._expanded[state.left] = (state.nbytes, level)
        if not state.left:
            self._finish(trail)
            return
        for hill, following, op in moves:
            reached = max(level, hill)
            left = state.left & ~(1 << op)
            if reached >= self.upper_bytes or self._level.get(left, reached + 1) <= reached:
                continue
            ready = tuple(x for x in state.ready if x != op) + tuple(self.lattice.enabled(left, op))
            child = SearchState(left, following, ready, [op])
            if reached == level and len(ready) <= WIDE:
                close(self.lattice, child, level, runs=False)
                if self._level.get(child.left, reached + 1) <= reached:
                    continue
            self._push(reached, child, (trail, tuple(child.path)))

    def _push(self, level: int, state: SearchState, trail: _Trail) -> None:
        if self._is_known_higher(level, state, trail):
            return
        self._queue(level, state, trail)

    def _is_known_higher(self, level: int, state: SearchState, trail: _Trail) -> bool:
        """Put off, or drop for good, a state that is known not to end at a level."""
        bound = self._recall(state.left, state.nbytes) if self._recall is not None else 0
        if bound <= level:
            return False
        if bound < self.upper_bytes and self._level.get(state.left, bound + 1) > bound:
            self._queue(bound, state, trail)
        return True

    def _queue(self, level: int, state: SearchState, trail: _Trail) -> None:
        self._made += 1
        left = state.left
        self._level[left] = level
        heapq.heappush(
            self._heap, (level, left.bit_count(), state.nbytes, self._made, left, state.ready, trail)
        )

    def _finish(self, trail: _Trail) -> None:
        placed: list[tuple[int, ...]] = []
        while trail is not None:
            trail, path = trail
            placed.append(path)
        self.order = self.lattice.order([op for path in reversed(placed) for op in path])
        self.end = SearchEnd.FOUND


def take_turns(
    searches: Sequence[RecallingSearch], guard: LimitGuard, states: int, alone: int = 0
) -> RecallingSearch | None:
    """Let searches for the same go on in turn until one ends; None if none does within so many states each.

    Args:
        searches: the most promising one first.
        guard: of all.
        states: of each.
        alone: states that the first one has to itself before the others begin.
    """
    first = FIRST_STATES
    turn = max(first, alone)
    while guard.check_now() is None and any(search.states < states for search in searches):
        for search in searches:
            if search.states < states and search.advance(guard, turn) is not SearchEnd.OPEN:
                return search
            turn = max(first, turn - alone) if search is searches[0] else turn
        alone = 0
        turn += turn // 2
    return None
