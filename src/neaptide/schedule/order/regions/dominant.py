"""Dominant schedules of small regions, basin by basin.

The lowest downset S0 is one that every schedule can be led through. Below it, start with nothing and look for the
smallest hill over which a downset is reached that holds no more bytes than the present one; go to the lowest downset
on the way there, and look again from that, until S0 is reached. Above it the same backwards from the end. So what is
searched are single basins, not the whole lattice, and each is searched best first with free moves.

Why the result dominates every schedule (bytes of downsets are submodular): let T be the present downset, Y the next
one, h the hill between them. Any schedule after T must climb to at least h before it holds no more than T. Joined
with Y, its states after that moment are no higher, and while it stands on that hill ours goes from T to Y.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from neaptide.outcome import LimitGuard, Limits
from neaptide.schedule.order.bounds.flow import INFINITE, lowest_downset
from neaptide.schedule.order.bounds.lower import escape_bound
from neaptide.schedule.order.regions.segments import Segment, canonical
from neaptide.schedule.order.search.downsets import DownsetSearch
from neaptide.schedule.order.search.lattice import Lattice, SearchState, take
from neaptide.schedule.order.steps import Steps

_QUICK_STATES: Final = 300  # of a basin, before a bound of its hill is worth its cuts


@dataclass(frozen=True, slots=True)
class LatticeResult:
    """Segments of a dominant schedule, canonical; None if there were too many downsets or a limit was met. And downsets looked at."""

    segments: list[Segment] | None
    states: int


def dominant_segments(region: Steps, state_limit: int, guard: LimitGuard | None = None) -> LatticeResult:
    """A schedule that dominates every schedule of the region. O(downsets looked at x width).

    The segments are those of Jin et al., arXiv 2312.13526 (dominant schedules); the search is described above.

    Args:
        region: ops without takeovers that depend on the order.
        guard: one unit of work per downset; when it says stop there are no segments.
    """
    guard = LimitGuard(Limits()) if guard is None else guard
    below = sorted(lowest_downset(region))
    above = sorted(set(range(region.op_count)).difference(below))
    down = _Side(region, (), below, reverse=False)
    up = _Side(region, below, above, reverse=True)
    if not down.walk(state_limit, guard) or not up.walk(state_limit - down.states, guard):
        return LatticeResult(None, down.states + up.states)
    climb = [
        Segment(rise - delta, -delta, ops[::-1] if isinstance(ops, tuple) else ops)
        for rise, delta, ops in reversed(up.segments)
    ]
    return LatticeResult(canonical(down.segments + climb), down.states + up.states)


class _Side:
    """Walks from nothing to the lowest downset; reversed, from everything back to it."""

    def __init__(self, region: Steps, done: Sequence[int], ops: Sequence[int], *, reverse: bool) -> None:
        self.segments: list[Segment] = []
        self.states = 0
        self._ops = ops
        self._steps = region.window(done, ops)
        self._lattice = Lattice(self._steps, reverse=reverse)

    def walk(self, limit: int, guard: LimitGuard) -> bool:
        """Find the segments; False above the limit of states, or where the guard says stop."""
        here = self._lattice.first()
        while here.left:
            way = self._way_out(here, limit, guard)
            if way is None:
                return False
            self._go(here, way)
        return True

    def _way_out(self, here: SearchState, limit: int, guard: LimitGuard) -> tuple[int, ...] | None:
        """The way over the smallest hill: from the level here where that is quick, else from a bound of it."""
        level = here.nbytes
        for states in (_QUICK_STATES, limit):
            search = DownsetSearch(
                self._lattice, start=here, goal_bytes=here.nbytes, lower_bytes=level, upper_bytes=INFINITE
            )
            search.advance(guard, min(states, limit - self.states))
            self.states += search.states
            if search.placed is not None or self.states >= limit:
                return search.placed
            level = escape_bound(
                self._steps,
                (),
                floor=search.lower_bytes,
                upper_bytes=INFINITE,
                guard=guard,
                reverse=self._lattice.reverse,
                basin=[op for op in range(len(self._ops)) if here.left >> op & 1],
            )
        return None

    def _go(self, here: SearchState, way: Sequence[int]) -> None:
        """Go as far as the lowest downset on the way; the part that leads there is no higher."""
        if len(way) > 2:
            way = self._lowest_part(here.left, way)
        begin = highest = here.nbytes
        for op in way:
            hill, following = self._lattice.move(here.left, here.nbytes, op)
            highest = max(highest, hill)
            take(self._lattice, here, op, following)
        ops = tuple(self._ops[op] for op in way)
        self.segments.append(Segment(highest - begin, here.nbytes - begin, ops if len(ops) > 1 else ops[0]))

    def _lowest_part(self, left: int, way: Sequence[int]) -> list[int]:
        rest = set(way)
        before = [op for op in range(len(self._ops)) if not left >> op & 1]
        behind = [op for op in range(len(self._ops)) if left >> op & 1 and op not in rest]
        if self._lattice.reverse:
            kept = lowest_downset(self._steps, include=behind, exclude=before, largest=False)
            return [op for op in way if op not in kept]
        kept = lowest_downset(self._steps, include=before, exclude=behind)
        return [op for op in way if op in kept]
