"""Which ops any order below a peak could reach: if not all of them, there is no such order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from neaptide.outcome import LimitGuard
from neaptide.schedule.order.bounds.lower import hill_bound
from neaptide.schedule.order.steps import Steps


def reachable_below(
    peak_bytes: int,
    way: Sequence[tuple[int, int]],
    *,
    seed: Iterable[int] = (),
    steps: Steps,
    guard: LimitGuard,
    reverse: bool = False,
) -> frozenset[int] | None:
    """A set of ops that no order below a peak leaves; None if all ops are reached, or a limit stops the work.

    The argument of `escape`, for one peak: the first op outside such a set runs from a downset inside it, the fewest
    bytes of which are a minimum cut. Ops for which that stays below the peak join the set; with none left it is as
    large as it gets. That holds from whatever set it starts.

    Args:
        peak_bytes: of the order that is to be proved best.
        way: ops of an order with their hills, in the order in which they are placed (reversed: last one first). Along
            it what stays below the peak is reached without a cut.
        seed: further ops to start with.
        steps: of the problem.
        guard: one unit of work per cut.
        reverse: from the end backwards.
    """
    blockers = steps.successors if reverse else steps.predecessors
    followers = steps.predecessors if reverse else steps.successors
    inside = _closed(seed, blockers)
    followed = _follow(way, 0, peak_bytes, inside)
    outside = dict.fromkeys(op for op in range(steps.op_count) if op not in inside)
    edge = [op for op in outside if inside.issuperset(blockers[op])]
    passed: set[int] = set()  # of the edge, since the set last grew
    while outside:
        op = next((op for op in edge if op not in passed), None)
        if op is None:
            return frozenset(inside)
        if guard.exhausted() is not None or guard.check_now() is not None:
            return None
        if reverse:
            kept = [other for other in outside if other != op]
            hill = hill_bound(steps, op, include=kept)
        else:
            hill = hill_bound(steps, op, exclude=outside)
        passed.add(op)
        if hill < peak_bytes:
            inside.add(op)
            start, followed = followed, _follow(way, followed, peak_bytes, inside)
            fresh = [op, *(other for other, _ in way[start:followed] if other in outside and other != op)]
            for other in fresh:
                del outside[other]
            near = dict.fromkeys((*edge, *(after for other in fresh for after in followers[other])))
            edge = [other for other in near if other in outside and inside.issuperset(blockers[other])]
            passed.clear()
    return None


def _follow(way: Sequence[tuple[int, int]], start: int, peak_bytes: int, inside: set[int]) -> int:
    """Reach what stays below a peak along an order; returns how far that goes."""
    for place in range(start, len(way)):
        op, hill = way[place]
        if op not in inside:
            if hill >= peak_bytes:
                return place
            inside.add(op)
    return len(way)


def _closed(seed: Iterable[int], blockers: Sequence[Iterable[int]]) -> set[int]:
    """Ops with all that must be placed before them."""
    found = set(seed)
    stack = list(found)
    while stack:
        fresh = [other for other in blockers[stack.pop()] if other not in found]
        found.update(fresh)
        stack += fresh
    return found
