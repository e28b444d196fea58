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
from collections.abc import Sequence
from dataclasses import dataclass

from neaptide.schedule.order.segments import Rope, Segment, canonical
from neaptide.schedule.order.splits import lowest_downset


@dataclass(frozen=True, slots=True)
class Region:
    """Items with dependencies and couplings among themselves only.

    Attributes:
        rise: by item, highest bytes while it runs above those before it.
        delta: by item, bytes after it less bytes before it, couplings left out.
        predecessors: by item, items that must have run.
        couplings: bytes, and the items the last of which frees them.
    """

    rise: tuple[int, ...]
    delta: tuple[int, ...]
    predecessors: tuple[tuple[int, ...], ...]
    couplings: tuple[tuple[int, tuple[int, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class LatticeResult:
    """What became of a region.

    Attributes:
        segments: of a dominant schedule, canonical, ops being items; None if there were too many downsets.
        states: downsets looked at.
    """

    segments: list[Segment] | None
    states: int


def dominant_segments(region: Region, state_limit: int) -> LatticeResult:
    """A schedule that dominates every schedule of the region. O(downsets looked at x width).

    The segments are those of Jin et al., arXiv 2312.13526 (dominant schedules); the search is described above.
    """
    lowest = lowest_downset(region.delta, region.predecessors, region.couplings)
    target = _mask(lowest)
    everything = (1 << len(region.rise)) - 1
    below = _Side(region, reverse=False)
    down = below.walk(target, state_limit)
    if down is None:
        return LatticeResult(None, below.states)
    above = _Side(region, reverse=True)
    up = above.walk(everything & ~target, state_limit - below.states)
    states = below.states + above.states
    if up is None:
        return LatticeResult(None, states)
    climb = [Segment(rise - delta, -delta, _backwards(ops)) for rise, delta, ops in reversed(up)]
    return LatticeResult(canonical(down + climb), states)


def _mask(items: set[int]) -> int:
    return sum(1 << item for item in items)


def _backwards(rope: Rope) -> Rope:
    return rope if isinstance(rope, int) else rope[::-1]


class _Side:
    """Walks from nothing to a set of items; reversed, from everything back to it, sets being what is taken out."""

    def __init__(self, region: Region, *, reverse: bool) -> None:
        count = len(region.rise)
        self.states = 0
        self._reverse = reverse
        self._couplings = region.couplings
        opens: list[list[int]] = [[] for _ in range(count)]
        for item, before in enumerate(region.predecessors):
            for other in before:
                opens[other].append(item)
        before_items: Sequence[Sequence[int]] = opens if reverse else region.predecessors
        self._before = before_items
        self._need = [sum(1 << b for b in before) for before in before_items]
        self._opens: Sequence[Sequence[int]] = region.predecessors if reverse else opens
        change, rise = region.delta, region.rise
        self._change = [-delta for delta in change] if reverse else list(change)
        self._rise = [r - d for r, d in zip(rise, change, strict=True)] if reverse else list(rise)
        self._ties: list[list[tuple[int, int]]] = [[] for _ in range(count)]
        for nbytes, items in region.couplings:
            mask = _mask(set(items))
            for item in items:
                self._ties[item].append((mask, nbytes))

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
            if segment is None:
                return None
            segments.append(segment)
            for item in segment.ops if isinstance(segment.ops, tuple) else (segment.ops,):
                assert isinstance(item, int)
                here |= 1 << item
        return segments

    def _basin(self, start: int, target: int, limit: int) -> Segment | None:
        """The lowest way out of a downset to one that is no higher, by best-first search with free moves."""
        need, opens = self._need, self._opens
        free = target & ~start
        ready: list[int] = []
        while free:
            bit = free & -free
            item = bit.bit_length() - 1
            if need[item] & start == need[item]:
                ready.append(item)
            free ^= bit
        best = {start: 0}  # by state, the lowest hill found so far on the way to it
        # Hill so far and level above the start, a serial number, the state, what is ready, what was taken.
        heap: list[tuple[int, int, int, int, list[int], Rope]] = [(0, 0, 0, start, ready, ())]
        serial = 0
        while heap:
            hill, level, _, state, ready, taken = heapq.heappop(heap)
            if hill > best[state]:
                continue
            if level <= 0 and state != start:
                return self._shorten(start, state, hill, _in_order(taken))
            for item in ready:
                rise, change = self._step(state, item)
                larger = state | 1 << item
                peak = max(hill, level + rise)
                known = best.get(larger)
                if known is not None and known <= peak:
                    continue
                best[larger] = peak
                after = level + change
                path: tuple[Rope, Rope] = (taken, item)
                open_now = [other for other in ready if other != item]
                open_now += [
                    other for other in opens[item] if larger & need[other] == need[other] and target >> other & 1
                ]
                moved = after > 0
                while moved:
                    moved = False
                    for other in open_now:
                        rise, change = self._step(larger, other)
                        if change <= 0 and after + rise <= peak:
                            larger |= 1 << other
                            after += change
                            path = (path, other)
                            open_now = [ready_op for ready_op in open_now if ready_op != other]
                            open_now += [
                                opened
                                for opened in opens[other]
                                if larger & need[opened] == need[opened] and target >> opened & 1
                            ]
                            moved = after > 0
                            break
                    else:
                        break
                if path[0] is not taken:
                    known = best.get(larger)
                    if known is not None and known <= peak:
                        continue
                    best[larger] = peak
                serial += 1
                heapq.heappush(heap, (peak, after, serial, larger, open_now, path))
            self.states = self.states + 1
            if self.states > limit:
                return None
        raise AssertionError("the lowest downset is no higher than any other")

    def _shorten(self, start: int, end: int, hill: int, path: list[int]) -> Segment:
        """Stop at the lowest downset between the two ends; the part of the path that leads there is no higher."""
        if len(path) > 2:
            path = self._lowest_part(start, path)
        state, level = start, 0
        for item in path:
            level += self._step(state, item)[1]
            state |= 1 << item
        del end
        return Segment(hill, level, tuple(path) if len(path) > 1 else path[0])

    def _lowest_part(self, start: int, path: list[int]) -> list[int]:
        place = {item: index for index, item in enumerate(path)}
        change = [self._change[item] for item in path]
        before = [[place[b] for b in self._before[item] if b in place] for item in path]
        couplings: list[tuple[int, list[int]]] = []
        for nbytes, items in self._couplings:
            mine = [place[item] for item in items if item in place]
            if not mine:
                continue
            if not self._reverse:
                if all(item in place or start >> item & 1 for item in items):
                    couplings.append((nbytes, mine))
            elif not any(start >> item & 1 for item in items):
                # Taken out first, one of them brings the bytes back: an item of its own that all of them need.
                for index in mine:
                    before[index].append(len(change))
                change.append(nbytes)
                before.append([])
        kept = lowest_downset(change, before, couplings)
        return [item for index, item in enumerate(path) if index in kept]


def _in_order(taken: Rope) -> list[int]:
    """Items of a path stored last one outermost."""
    found: list[int] = []
    while isinstance(taken, tuple) and taken:
        taken, item = taken
        assert isinstance(item, int)
        found.append(item)
    return found[::-1]


def peak_bound(region: Region, cuts: int = 8) -> int:
    """Bytes above its start that no schedule of a region can do without. One minimum cut for each of the top items.

    Each item is run in the lowest downset in which it may be; the items with the largest rise are tried.
    """
    bound = 0
    for item in sorted(range(len(region.rise)), key=lambda item: -region.rise[item])[:cuts]:
        include = region.predecessors[item]
        lowest = lowest_downset(
            region.delta, region.predecessors, region.couplings, include=include, exclude=(item,)
        )
        bound = max(bound, level_of(region, lowest) + region.rise[item])
    return bound


def level_of(region: Region, downset: set[int]) -> int:
    """Bytes of a downset above those of the empty one."""
    freed = sum(nbytes for nbytes, items in region.couplings if downset.issuperset(items))
    return sum(region.delta[item] for item in downset) - freed


def levels_of(region: Region, order: Sequence[int]) -> list[int]:
    """Valleys and hills of an order of a region's items, from 0."""
    points = [0]
    for length, item in enumerate(order, start=1):
        points += (points[-1] + region.rise[item], level_of(region, set(order[:length])))
    return points
