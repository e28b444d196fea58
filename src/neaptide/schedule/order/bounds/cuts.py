"""Lowest downsets by minimum cut: the one piece of code behind bounds, splits and dominant schedules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from neaptide.schedule.order.bounds.flow import INFINITE, FlowNetwork
from neaptide.schedule.order.steps import Steps

_SOURCE = 0
_SINK = 1


def lowest_downset(
    steps: Steps, *, include: Iterable[int] = (), exclude: Iterable[int] = (), largest: bool = True
) -> frozenset[int]:
    """The downset after which the fewest bytes are there. One minimum cut, whose source side it is.

    Args:
        include: ops that must be in it (their ancestors follow).
        exclude: ops that must not be in it (nor their descendants).
        largest: of several, the largest instead of the smallest.
    """
    # What is in it or not for sure is merged into source and sink.
    inside = _closed(include, steps.predecessors)
    outside = _closed(exclude, steps.successors)
    free = [op for op in range(len(steps.delta)) if op not in inside and op not in outside]
    spot_of = dict.fromkeys(inside, _SOURCE) | dict.fromkeys(outside, _SINK)
    spot_of.update((op, 2 + index) for index, op in enumerate(free))
    coupled = [
        (nbytes, ops)
        for nbytes, candidates, _ in steps.couplings
        if nbytes and outside.isdisjoint(ops := [op for op in candidates if op not in inside]) and ops
    ]
    network = FlowNetwork(2 + len(free) + len(coupled))
    for op in free:
        change, spot = steps.delta[op], spot_of[op]
        if change < 0:
            network.add_arc(_SOURCE, spot, -change)
        elif change > 0:
            network.add_arc(spot, _SINK, change)
        for before in steps.predecessors[op]:
            if before not in inside:
                network.add_arc(spot, spot_of[before], INFINITE)
    for point, (nbytes, ops) in enumerate(coupled, start=2 + len(free)):
        network.add_arc(_SOURCE, point, nbytes)
        for op in ops:
            network.add_arc(point, spot_of[op], INFINITE)
    network.maximum_flow(_SOURCE, _SINK)
    if largest:
        out = network.reaching(_SINK)
        return frozenset(inside.union(op for op in free if not out[spot_of[op]]))
    reached = network.reached(_SOURCE)
    return frozenset(inside.union(op for op in free if reached[spot_of[op]]))


def _closed(ops: Iterable[int], before: Sequence[Iterable[int]]) -> set[int]:
    """Ops and all that must come before them."""
    found = set(ops)
    stack = list(found)
    while stack:
        fresh = [other for other in before[stack.pop()] if other not in found]
        found.update(fresh)
        stack += fresh
    return found
