"""Dominant schedules of small regions, basin by basin.

The lowest downset S0 is one that every schedule can be led through. Below it, start with nothing and look for the
smallest hill over which a downset is reached that holds no more bytes than the present one; go to the lowest downset
on the way there, and look again from that, until S0 is reached. Above it the same backwards from the end. So what is
searched are single basins, not the whole lattice, and each is searched best first with free moves.

Why the result dominates every schedule (bytes of downsets are submodular): let T be the present downset, Y the next
one, h the hill between them. Any schedule behind T must climb to at least h before it holds no more than T. Joined
with Y, its states after that moment are no higher, and while it stands on that hill ours goes from T to Y.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from neaptide.outcome import LimitGuard
from neaptide.schedule.order.bounds.cuts import lowest_downset
from neaptide.schedule.order.regions.segments import Rope, Segment, canonical
from neaptide.schedule.order.steps import Coupling, Steps

_QUICK_STATES: Final = 300  # looked at best first; then bisection takes over
_NO_BUDGET: Final = 1 << 62


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
        guard: asked for time and interrupts, not charged; when it says stop there are no segments.
    """
    target = _mask(lowest_downset(region))
    everything = (1 << len(region.rise)) - 1
    below = _Side(region, guard, reverse=False)
    down = below.walk(target, state_limit)
    if down is None:
        return LatticeResult(None, below.states)
    above = _Side(region, guard, reverse=True)
    up = above.walk(everything & ~target, state_limit - below.states)
    states = below.states + above.states
    if up is None:
        return LatticeResult(None, states)
    climb = [Segment(rise - delta, -delta, _backwards(ops)) for rise, delta, ops in reversed(up)]
    return LatticeResult(canonical(down + climb), states)


def _mask(items: Iterable[int]) -> int:
    return sum(1 << item for item in items)


def _backwards(rope: Rope) -> Rope:
    return rope if isinstance(rope, int) else rope[::-1]


@dataclass(frozen=True, slots=True)
class _Way:
    """A way out of a basin; without a path, the lowest hill that any way out must still cross."""

    hill: int
    path: list[int]


class _Side:
    """Walks from nothing to a set of items; reversed, from everything back to it, sets being what is taken out."""

    def __init__(self, region: Steps, guard: LimitGuard | None, *, reverse: bool) -> None:
        count = len(region.rise)
        self.states = 0
        self._guard = guard
        self._reverse = reverse
        self._couplings = region.couplings
        opens: Sequence[Sequence[int]] = region.predecessors if reverse else region.successors
        self._before: Sequence[Sequence[int]] = region.successors if reverse else region.predecessors
        self._need = [_mask(before) for before in self._before]
        self._opens = opens
        change, rise = region.delta, region.rise
        self._change = [-delta for delta in change] if reverse else list(change)
        self._rise = [r - d for r, d in zip(rise, change, strict=True)] if reverse else list(rise)
        self._ties: list[list[tuple[int, int]]] = [[] for _ in range(count)]
        for nbytes, items, _ in region.couplings:
            mask = _mask(items)
            for item in items:
                self._ties[item].append((mask, nbytes))
        # The most that taking an item can free: reversed, couplings only ever add to it.
        freed = [0 if reverse else sum(nbytes for _, nbytes in ties) for ties in self._ties]
        self._may_fall = [delta <= most for delta, most in zip(self._change, freed, strict=True)]

    def _step(self, state: int, item: int) -> tuple[int, int]:
        """Rise over the bytes of a state, and change, if an item is taken next."""
        rise, change = self._rise[item], self._change[item]
        if self._reverse:
            for mask, nbytes in self._ties[item]:
                if not state & mask:  # the last one of the coupling, in running order: it frees the bytes
                    change += nbytes
                    rise += nbytes
        else:
            larger = state | 1 << item
            for mask, nbytes in self._ties[item]:
                if larger & mask == mask:
                    change -= nbytes
        return rise, change

    def walk(self, target: int, limit: int) -> list[Segment] | None:
        """Segments from nothing to the target, the lowest of all; None above the limit of states."""
        here = 0
        segments: list[Segment] = []
        while here != target:
            segment = self._basin(here, target, limit)
            if segment is None or self._is_over(limit):
                return None
            segments.append(segment)
            for item in segment.ops if isinstance(segment.ops, tuple) else (segment.ops,):
                assert isinstance(item, int)
                here |= 1 << item
        return segments

    def _is_over(self, limit: int) -> bool:
        return self.states > limit or (self._guard is not None and self._guard.exhausted(0) is not None)

    def _basin(self, start: int, target: int, limit: int) -> Segment | None:
        """The lowest way out of a downset to one that is no higher.

        Best first while that is quick. In a wide basin every height of hill would meet every set of items again, so
        then the hill is found by bisection: at a given budget free moves go as far as they ever can. The first budget
        is a bound, most often the hill itself: budgets below, which take longest, are never tried.
        """
        ready = self._ready(start, target)
        found, floor = self._best_first(start, target, ready, limit)
        if found is not None:
            return self._shorten(start, found[0], found[1])
        way = self._dive(start, target, ready, _NO_BUDGET, limit)
        if way is not None and way.hill > floor:
            items = [item for item in range(len(self._need)) if (target & ~start) >> item & 1]
            floor = way_out_bound(self._basin_of(start, items), len(items), floor, self._guard)
        budget = floor
        while way is not None and way.path and way.hill > floor:
            attempt = self._dive(start, target, ready, budget, limit)
            if attempt is None:
                return None
            if attempt.path:
                way = attempt
            else:
                floor = attempt.hill
            budget = (floor + way.hill) // 2
        if way is None:
            return None
        assert way.path, "the lowest downset is no higher than any other"
        return self._shorten(start, way.hill, way.path)

    def _ready(self, start: int, target: int) -> list[int]:
        need = self._need
        free = target & ~start
        ready: list[int] = []
        while free:
            bit = free & -free
            item = bit.bit_length() - 1
            if need[item] & start == need[item]:
                ready.append(item)
            free ^= bit
        return ready

    def _best_first(
        self, start: int, target: int, ready: list[int], limit: int
    ) -> tuple[tuple[int, list[int]] | None, int]:
        """Hill and path of the lowest way out, if few states show it, and a hill that no way out is below."""
        best = {start: 0}  # by state, the lowest hill found so far on the way to it
        # Hill so far and level above the start, a serial number, the state, what is ready, what was taken.
        heap: list[tuple[int, int, int, int, list[int], Rope]] = [(0, 0, 0, start, ready, ())]
        serial = hill = 0
        for _ in range(_QUICK_STATES):
            hill, level, _, state, ready, taken = heapq.heappop(heap)
            if hill > best[state]:
                continue
            if level <= 0 and state != start:
                return (hill, _in_order(taken)), hill
            self.states += 1
            if self._is_over(limit):
                break
            for item in ready:
                rise, change = self._step(state, item)
                peak = max(hill, level + rise)
                larger, after, open_now, path = self._follow(
                    state | 1 << item,
                    level + change,
                    peak,
                    self._opened(state, item, ready, target),
                    (taken, item),
                    target,
                )
                known = best.get(larger)
                if known is None or peak < known:
                    best[larger] = peak
                    serial += 1
                    heapq.heappush(heap, (peak, after, serial, larger, open_now, path))
        return None, hill

    def _opened(self, state: int, item: int, ready: list[int], target: int) -> list[int]:
        """What is ready once an item has been taken."""
        after = ready.copy()
        after.remove(item)
        larger = state | 1 << item
        for other in self._opens[item]:
            if larger & self._need[other] == self._need[other] and target >> other & 1:
                after.append(other)
        return after

    def _follow(
        self, state: int, level: int, budget: int, ready: list[int], taken: Rope, target: int
    ) -> tuple[int, int, list[int], Rope]:
        """Take what goes no higher and fits, until the level of the start is reached or nothing is left."""
        may_fall, least_rise = self._may_fall, self._rise
        moved = True
        while moved and level > 0:
            moved = False
            for item in ready:
                if not may_fall[item] or level + least_rise[item] > budget:
                    continue
                rise, change = (
                    self._step(state, item) if self._ties[item] else (self._rise[item], self._change[item])
                )
                if change <= 0 and level + rise <= budget:
                    ready = self._opened(state, item, ready, target)
                    state |= 1 << item
                    level += change
                    taken = (taken, item)
                    moved = True
                    break
        return state, level, ready, taken

    def _dive(self, start: int, target: int, ready: list[int], budget: int, limit: int) -> _Way | None:
        """Depth first for a way out within a budget; without one, the lowest hill that stood in the way."""
        blocked = _NO_BUDGET
        seen = {start}
        stack: list[tuple[int, int, int, list[int], Rope]] = [(0, 0, start, ready, ())]
        while stack:
            level, hill, state, ready, taken = stack.pop()
            self.states += 1
            if self._is_over(limit):
                return None
            moves: list[tuple[int, int, int, int]] = []
            for item in ready:
                rise, change = (
                    self._step(state, item) if self._ties[item] else (self._rise[item], self._change[item])
                )
                peak = level + rise
                if peak > budget:
                    blocked = min(blocked, peak)
                else:
                    moves.append((rise - change, item, peak, level + change))
            moves.sort()  # the last one is taken first: the hill that stands highest above its valley
            for _, item, peak, after in moves:
                bit = state | 1 << item
                if bit in seen:
                    continue
                opened = self._opened(state, item, ready, target)
                higher = max(hill, peak)
                larger, after, opened, path = self._follow(bit, after, budget, opened, (taken, item), target)  # noqa: PLW2901
                if after <= 0:
                    order = _in_order(path)
                    return _Way(self._hill(start, order), order)
                if larger not in seen:
                    seen.add(larger)
                    seen.add(bit)
                    stack.append((after, higher, larger, opened, path))
        return _Way(blocked, [])

    def _hill(self, start: int, path: list[int]) -> int:
        """Highest rise of a path above its start."""
        state, level, hill = start, 0, 0
        for item in path:
            rise, change = self._step(state, item)
            hill = max(hill, level + rise)
            level += change
            state |= 1 << item
        return hill

    def _shorten(self, start: int, hill: int, path: list[int]) -> Segment:
        """Stop at the lowest downset between the two ends; the part of the path that leads there is no higher."""
        if len(path) > 2:
            path = self._lowest_part(start, path)
        state, level = start, 0
        for item in path:
            level += self._step(state, item)[1]
            state |= 1 << item
        return Segment(hill, level, tuple(path) if len(path) > 1 else path[0])

    def _lowest_part(self, start: int, path: list[int]) -> list[int]:
        kept = lowest_downset(self._basin_of(start, path))
        return [item for index, item in enumerate(path) if index in kept]

    def _basin_of(self, start: int, items: list[int]) -> Steps:
        """Items that may be taken from a downset on, all that they need beyond it being among them.

        Bytes that come back with the first of several items are further items, which those need.
        """
        index_of = {item: index for index, item in enumerate(items)}
        rise, change = [self._rise[item] for item in items], [self._change[item] for item in items]
        before = [[index_of[b] for b in self._before[item] if b in index_of] for item in items]
        couplings: list[Coupling] = []
        for nbytes, tied, _ in self._couplings:
            mine = [index_of[item] for item in tied if item in index_of]
            if not mine:
                continue
            if not self._reverse:
                if all(item in index_of or start >> item & 1 for item in tied):
                    couplings.append(Coupling(nbytes, tuple(mine)))
            elif not any(start >> item & 1 for item in tied):
                for index in mine:
                    before[index].append(len(change))
                rise.append(nbytes)
                change.append(nbytes)
                before.append([])
        return Steps(tuple(rise), tuple(change), tuple(map(tuple, before)), tuple(couplings))


def _in_order(taken: Rope) -> list[int]:
    """Items of a path stored last one outermost."""
    found: list[int] = []
    while isinstance(taken, tuple) and taken:
        taken, item = taken
        assert isinstance(item, int)
        found.append(item)
    return found[::-1]


def way_out_bound(basin: Steps, count: int, floor: int, guard: LimitGuard | None = None) -> int:
    """A hill that every way out must cross. One minimum cut for each look at an item at the edge.

    A way out leads from a downset, level 0, to another one whose level is no higher. An item is reached within a budget
    if it can run from some downset of items reached before; one minimum cut finds the lowest of these. They are all taken
    as reached at once, which no schedule does, so the result is a bound. The budget rises only where every item at the
    edge requires more. The search ends when a downset of reached items is at level 0 or below.

    Args:
        count: of its items; those behind are bytes that come back with them.
        guard: asked for time and interrupts, not charged; when it says stop, the bound so far is returned.
    """
    outside = dict.fromkeys(range(count))
    waits_for = [sum(other in outside for other in before) for before in basin.predecessors]
    edge = dict.fromkeys(item for item in outside if not waits_for[item])

    def reach(item: int) -> None:
        del outside[item], edge[item]
        for other in basin.successors[item]:
            waits_for[other] -= 1
            if not waits_for[other]:
                edge[other] = None

    while edge:
        hills: dict[int, int] = {}
        is_larger = False
        for item in list(edge):
            if guard is not None and guard.check_now() is not None:
                return floor
            lowest = lowest_downset(basin, include=basin.predecessors[item], exclude=outside)
            hills[item] = basin.bytes_after(lowest) + basin.rise[item]
            if hills[item] <= floor:
                reach(item)
                is_larger = True
        if not is_larger:
            cheapest = min(hills, key=lambda item: (hills[item], item))
            floor = hills[cheapest]
            reach(cheapest)
        lowest = lowest_downset(basin, exclude=outside)
        if basin.bytes_after(lowest) <= 0 and any(item < count for item in lowest):
            return floor
    return floor
