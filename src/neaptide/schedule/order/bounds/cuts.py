"""Lowest downsets by minimum cut: the one piece of code behind bounds, splits and dominant schedules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from neaptide.schedule.order.bounds.flow import INFINITE, FlowNetwork
from neaptide.schedule.order.steps import Steps

_SOURCE = 0
_SINK = 1


def lowest_downset(
    delta: Sequence[int],
    predecessors: Sequence[Iterable[int]],
    couplings: Iterable[tuple[int, Iterable[int]]],
    *,
    include: Iterable[int] = (),
    exclude: Iterable[int] = (),
    largest: bool = True,
    successors: Sequence[Iterable[int]] | None = None,
) -> set[int]:
    """The downset after which the fewest bytes are there. One minimum cut.

    The source side of the cut is the downset. What is in it or not for sure is merged into source and sink.

    Args:
        delta: by item, what it adds for good.
        predecessors: by item.
        couplings: bytes, and the items all of which must have run to free them.
        include: items that must be in it (their ancestors follow).
        exclude: items that must not be in it (nor their descendants).
        largest: of several, the largest instead of the smallest.
        successors: the inverse of the predecessors, if that is known already.
    """
    inside = _closed(include, predecessors)
    outside = set(exclude)
    if outside:
        outside = _closed(outside, inverse(predecessors) if successors is None else successors)
    free = [item for item in range(len(delta)) if item not in inside and item not in outside]
    spot_of = dict.fromkeys(inside, _SOURCE) | dict.fromkeys(outside, _SINK)
    spot_of.update((item, 2 + index) for index, item in enumerate(free))
    coupled = [
        (nbytes, items)
        for nbytes, candidates in couplings
        if nbytes and outside.isdisjoint(items := [i for i in candidates if i not in inside]) and items
    ]
    network = FlowNetwork(2 + len(free) + len(coupled))
    for item in free:
        change, spot = delta[item], spot_of[item]
        if change < 0:
            network.add_arc(_SOURCE, spot, -change)
        elif change > 0:
            network.add_arc(spot, _SINK, change)
        for before in predecessors[item]:
            if before not in inside:
                network.add_arc(spot, spot_of[before], INFINITE)
    for point, (nbytes, items) in enumerate(coupled, start=2 + len(free)):
        network.add_arc(_SOURCE, point, nbytes)
        for item in items:
            network.add_arc(point, spot_of[item], INFINITE)
    network.maximum_flow(_SOURCE, _SINK)
    if largest:
        out = network.reaching(_SINK)
        return inside | {item for item in free if not out[spot_of[item]]}
    reached = network.reached(_SOURCE)
    return inside | {item for item in free if reached[spot_of[item]]}


def lowest_state(
    steps: Steps,
    *,
    include: Iterable[int] = (),
    exclude: Iterable[int] = (),
    largest: bool = True,
    successors: Sequence[Iterable[int]] | None = None,
) -> frozenset[int]:
    """`lowest_downset` of the ops of a problem."""
    couplings = [(coupling.nbytes, coupling.ops) for coupling in steps.couplings]
    return frozenset(
        lowest_downset(
            steps.delta,
            steps.predecessors,
            couplings,
            include=include,
            exclude=exclude,
            largest=largest,
            successors=successors,
        )
    )


def state_bytes(steps: Steps, downset: frozenset[int]) -> int:
    """Bytes between ops once a downset has run. O(size)."""
    freed = sum(coupling.nbytes for coupling in steps.couplings if downset.issuperset(coupling.ops))
    return steps.start_bytes + sum(steps.delta[op] for op in downset) - freed


def _closed(items: Iterable[int], before: Sequence[Iterable[int]]) -> set[int]:
    """Items and all that must come before them."""
    found = set(items)
    stack = list(found)
    while stack:
        fresh = [other for other in before[stack.pop()] if other not in found]
        found.update(fresh)
        stack += fresh
    return found


def inverse(before: Sequence[Iterable[int]]) -> list[list[int]]:
    """Successors from predecessors, or the other way round. O(size)."""
    after: list[list[int]] = [[] for _ in before]
    for item, earlier in enumerate(before):
        for other in earlier:
            after[other].append(item)
    return after
