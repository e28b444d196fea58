"""One order for all shapes: candidates that may be good for many, each with its peak as expressions.

They are the program order, the lists of `schedule.symbolic.lists` in both directions, orders that are given, orders that
`schedule.order.portfolio` finds for single shapes far from each other, and splices: the beginning of one of them, and the
rest in the sequence of another. Which operations may run first does not depend on the shape, so an order that was found for
one shape is legal for all, and so is a splice of two. Where the peak of a long sequence lies moves with the shape, so a
splice can be as good as the first where that is best, and as the second where that is.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from types import MappingProxyType
from typing import Final

from neaptide.outcome import LimitGuard, Limits
from neaptide.schedule.order.portfolio import best_order
from neaptide.schedule.symbolic.lists import list_order
from neaptide.schedule.symbolic.peaks import OrderPeaks, SymbolicPeak
from neaptide.schedule.symbolic.problem import SymbolicProblem

_CUTS: Final = 40  # places of one order at which it may be cut
_ROUNDS: Final = 3  # of splices; each may splice what the one before has made


@dataclass(frozen=True, slots=True)
class CandidateOrder:
    """An order with its peak as expressions, and what made it: a method, a shape, or two candidates."""

    order: tuple[int, ...]
    peak: SymbolicPeak
    origin: str


def symbolic_orders(
    problem: SymbolicProblem,
    limits: Limits | None = None,
    interrupt: threading.Event | None = None,
    known: Mapping[str, Sequence[int]] = MappingProxyType({}),
) -> tuple[CandidateOrder, ...]:
    """All distinct candidates, program order first. Searches for single shapes share the limits."""
    collection = _Collection(problem, LimitGuard(limits or Limits(), interrupt), interrupt)
    collection.add(tuple(range(problem.structure.op_count)), "program order")
    for reverse in (False, True):
        collection.add(list_order(problem, reverse=reverse), f"list, {'backward' if reverse else 'forward'}")
    for origin, order in known.items():
        collection.add(tuple(order), origin)
    shapes = _far_shapes(problem, collection.peaks.total_samples())
    for number, shape in enumerate(shapes):
        collection.search(shape, len(shapes) - number)
    for _ in range(_ROUNDS):
        if not collection.splice():
            break
    return tuple(collection.candidates.values())


class _Collection:
    def __init__(
        self, problem: SymbolicProblem, guard: LimitGuard, interrupt: threading.Event | None
    ) -> None:
        self.problem, self.guard, self.interrupt = problem, guard, interrupt
        self.peaks = OrderPeaks(problem)
        self.candidates: dict[tuple[int, ...], CandidateOrder] = {}

    def add(self, order: tuple[int, ...], origin: str) -> None:
        if order not in self.candidates:
            self.candidates[order] = CandidateOrder(order, self.peaks.peak(order), origin)

    def search(self, shape: Mapping[str, int], shares: int) -> None:
        """Search an order for one shape, with a share of the limits that are left."""
        if self.guard.exhausted(0) is not None or self.guard.check_now() is not None:
            return
        outcome = best_order(self.problem.at(shape), self.guard.left(shares), self.interrupt)
        self.guard.exhausted(outcome.work)
        where = ", ".join(f"{dim} = {size}" for dim, size in shape.items())
        self.add(outcome.require().order, f"found for {where}")

    def splice(self) -> bool:
        """Add the best splice of two candidates that are each the best somewhere, if it is better over the range."""
        candidates = tuple(self.candidates.values())
        peaks = [candidate.peak.samples for candidate in candidates]
        lowest = tuple(max(1, min(at)) for at in zip(*peaks, strict=True))
        ranks = [_rank(of_order, lowest) for of_order in peaks]
        winners = [number for number, rank in enumerate(ranks) if rank[1]]
        best, found = min(ranks), None
        step = max(1, self.problem.structure.op_count // _CUTS)
        for first, second in permutations(winners, 2):
            a, b = candidates[first], candidates[second]
            for cut in range(step, len(a.order), step):
                order = spliced(a.order, b.order, cut)
                if (rank := _rank(self.peaks.sampled(order), lowest)) < best:
                    best, found = rank, (order, f"splice of {first} and {second} at {cut}")
        if found is None:
            return False
        self.add(*found)
        return True


def spliced(first: Sequence[int], second: Sequence[int], cut: int) -> tuple[int, ...]:
    """The beginning of one order up to a position, then all others in the sequence of another. Legal if both are."""
    begin = tuple(first[:cut])
    taken = frozenset(begin)
    return (*begin, *(op for op in second if op not in taken))


def _rank(peaks: Sequence[int], lowest: Sequence[int]) -> tuple[float, int, float]:
    """How good an order is over sample shapes, less is better: its worst excess, minus where it is the best, the sum."""
    excess = [peak / least for peak, least in zip(peaks, lowest, strict=True)]
    return max(excess), -sum(share <= 1 for share in excess), sum(excess)


def _far_shapes(problem: SymbolicProblem, totals: Sequence[int]) -> tuple[dict[str, int], ...]:
    """Sample shapes far from each other: the least total of bytes, the largest, and the one in the middle of these."""
    samples = problem.store.samples()
    by_size = sorted(range(len(samples)), key=lambda number: (totals[number], number))
    chosen = dict.fromkeys((by_size[0], by_size[-1], by_size[len(by_size) // 2]))
    return tuple(samples[number] for number in chosen)
