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

import numpy as np

from neaptide.outcome import LimitGuard, Limits
from neaptide.schedule.order.portfolio import best_order
from neaptide.schedule.symbolic.lists import list_order
from neaptide.schedule.symbolic.peaks import SymbolicPeak, peak_of_order
from neaptide.schedule.symbolic.problem import SymbolicProblem

_CUTS: Final = 40  # places of one order at which it may be cut
_ROUNDS: Final = 3  # of splices; each may splice what the one before has made


class SampledPeaks:
    """Sizes of a problem at the sample shapes of its store, as arrays."""

    def __init__(self, problem: SymbolicProblem) -> None:
        structure = problem.structure
        shapes = problem.store.samples()
        count = len(shapes)
        sizes = np.array(
            [[size.evaluate(shape) for shape in shapes] for size in problem.sizes], dtype=np.int64
        ).reshape(-1, count)
        kept = np.array([s.resident or s.output for s in structure.storages], dtype=bool)
        from_start = np.array(structure.from_start, dtype=bool)
        is_used = np.array([bool(accessors) for accessors in structure.accessors], dtype=bool)
        self._rest = sizes[kept & ~is_used].sum(axis=0)
        self._sizes = sizes[is_used]
        self._kept = kept[is_used]
        self._from_start = from_start[is_used]
        used = [accessors for accessors in structure.accessors if accessors]
        self._accessors = np.array([op for accessors in used for op in accessors], dtype=np.int64)
        lengths = np.array([len(accessors) for accessors in used], dtype=np.int64)
        self._begins = np.cumsum(lengths) - lengths
        self._workspace = np.array(
            [[size.evaluate(shape) for shape in shapes] for size in problem.workspace], dtype=np.int64
        ).reshape(-1, count)

    def peaks(self, order: Sequence[int]) -> tuple[int, ...]:
        """The peak of a legal order at each sample shape. O((operations + storages) x shapes + accesses)."""
        count = len(order)
        if not count:
            return tuple(self._rest.tolist())
        taken = np.array(order, dtype=np.int64)
        position_of = np.empty(count, dtype=np.int64)
        position_of[taken] = np.arange(count)
        change = np.zeros((count + 1, len(self._rest)), dtype=np.int64)
        if len(self._accessors):
            positions = position_of[self._accessors]
            begin = np.where(self._from_start, 0, positions[self._begins])
            end = np.where(self._kept, count, np.maximum.reduceat(positions, self._begins) + 1)
            np.add.at(change, begin, self._sizes)
            np.subtract.at(change, end, self._sizes)
        live = np.cumsum(change[:-1], axis=0) + self._workspace[taken] + self._rest
        return tuple(live.max(axis=0).tolist())


@dataclass(frozen=True, slots=True)
class CandidateOrder:
    """An order with its peak as expressions.

    Attributes:
        origin: what made it: a method, the shape that it was found for, or the numbers of two candidates and where the
            first of them ends.
    """

    order: tuple[int, ...]
    peak: SymbolicPeak
    origin: str


def symbolic_orders(
    problem: SymbolicProblem,
    limits: Limits | None = None,
    interrupt: threading.Event | None = None,
    known: Mapping[str, Sequence[int]] = MappingProxyType({}),
) -> tuple[CandidateOrder, ...]:
    """All distinct candidates, program order first.

    Args:
        limits: of the searches for single shapes, which share them; lists are always made.
        known: further orders that compete, by origin.
    """
    collection = _Collection(problem, LimitGuard(limits or Limits(), interrupt), interrupt)
    collection.add(tuple(range(problem.structure.op_count)), "program order")
    for reverse in (False, True):
        collection.add(list_order(problem, reverse=reverse), f"list, {'backward' if reverse else 'forward'}")
    for origin, order in known.items():
        collection.add(tuple(order), origin)
    shapes = _far_shapes(problem)
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
        self.sampled = SampledPeaks(problem)
        self.candidates: dict[tuple[int, ...], CandidateOrder] = {}

    def add(self, order: tuple[int, ...], origin: str) -> None:
        if order not in self.candidates:
            self.candidates[order] = CandidateOrder(order, peak_of_order(self.problem, order), origin)

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
                if (rank := _rank(self.sampled.peaks(order), lowest)) < best:
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


def _far_shapes(problem: SymbolicProblem) -> tuple[dict[str, int], ...]:
    """Sample shapes far from each other: the least total of bytes, the largest, and the one in the middle of these."""
    samples = problem.store.samples()
    totals = problem.total(tuple(range(len(problem.sizes)))).samples
    by_size = sorted(range(len(samples)), key=lambda number: (totals[number], number))
    chosen = dict.fromkeys((by_size[0], by_size[-1], by_size[len(by_size) // 2]))
    return tuple(samples[number] for number in chosen)
