"""A lower bound of the hill that every way out of a basin crosses.

A way out leads from a downset, level 0, to another one whose level is no higher. An item is reached within a budget
if it can run from some downset of items reached before; one minimum cut finds the lowest of these. They are all taken
as reached at once, which no schedule does, so the result is a bound. The budget rises only where every item at the
edge requires more. The search ends when a downset of reached items is at level 0 or below.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from neaptide.outcome import LimitGuard
from neaptide.schedule.order.bounds.cuts import inverse, lowest_downset


@dataclass(frozen=True, slots=True)
class Basin:
    """Items that may be taken from a downset on, in one direction.

    Attributes:
        rise: by item, highest bytes while it is taken, above those before it.
        change: by item, bytes after it less bytes before it, couplings left out. May be longer than `rise`: the rest
            are bytes that come back with the first of several items, as items of their own which those need.
        before: by item, what must have been taken.
        couplings: bytes, and the items the last of which frees them.
    """

    rise: list[int]
    change: list[int]
    before: list[list[int]]
    couplings: list[tuple[int, list[int]]]


def way_out_bound(basin: Basin, floor: int, guard: LimitGuard | None = None) -> int:
    """A hill that every way out must cross. One minimum cut for each look at an item at the edge.

    Args:
        basin: what there is to take.
        floor: a bound known already; never less is returned.
        guard: asked for time and interrupts, not charged; when it says stop, the bound so far is returned.
    """
    after = inverse(basin.before)
    outside = dict.fromkeys(range(len(basin.rise)))
    waits_for = [sum(other in outside for other in before) for before in basin.before]
    edge = dict.fromkeys(item for item in outside if not waits_for[item])

    def reach(item: int) -> None:
        del outside[item], edge[item]
        for other in after[item]:
            waits_for[other] -= 1
            if not waits_for[other]:
                edge[other] = None

    while edge:
        hills: dict[int, int] = {}
        is_larger = False
        for item in list(edge):
            if guard is not None and guard.check_now() is not None:
                return floor
            hills[item] = _lowest(basin, after, outside, basin.before[item])[0] + basin.rise[item]
            if hills[item] <= floor:
                reach(item)
                is_larger = True
        if not is_larger:
            cheapest = min(hills, key=lambda item: (hills[item], item))
            floor = hills[cheapest]
            reach(cheapest)
        level, downset = _lowest(basin, after, outside, ())
        if level <= 0 and any(item < len(basin.rise) for item in downset):
            return floor
    return floor


def _lowest(
    basin: Basin, after: Sequence[Sequence[int]], outside: dict[int, None], include: Sequence[int]
) -> tuple[int, set[int]]:
    """Level of the lowest downset of what has been reached, and that downset."""
    lowest = lowest_downset(
        basin.change, basin.before, basin.couplings, include=include, exclude=outside, successors=after
    )
    freed = sum(nbytes for nbytes, items in basin.couplings if lowest.issuperset(items))
    return sum(basin.change[item] for item in lowest) - freed, lowest
