"""One order for all shapes, with what is proved of it; and where in the range another order is better."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Final

from neaptide.outcome import LimitGuard, Limits, Outcome, Termination, TerminationReason
from neaptide.schedule.order.sharing import touched
from neaptide.schedule.symbolic.candidates import CandidateOrder, SearchedShape, collect_orders
from neaptide.schedule.symbolic.certificate import RangePart, best_parts, proved_excess
from neaptide.schedule.symbolic.peaks import largest
from neaptide.schedule.symbolic.problem import SymbolicProblem
from neaptide.symbolic.relations import KnownSize

_MOST_PARTS: Final = 16
_TOLERANCE: Final = Fraction(1, 100)


@dataclass(frozen=True, slots=True)
class SymbolicOrders:
    """Orders for a range of shapes.

    Attributes:
        whole: the best one for the whole range, with what is proved of it against the other candidates.
        parts: boxes that make up the range, with the best order of each; one box where one order is within the
            tolerance everywhere.
        excess_over_bound: for every shape in the range the peak of `whole` is proved to be at most this share above what
            every order needs; None where no share of the certificate's is.
    """

    candidates: tuple[CandidateOrder, ...]
    whole: RangePart
    parts: tuple[RangePart, ...]
    excess_over_bound: Fraction | None
    searched: tuple[SearchedShape, ...]

    def best(self) -> CandidateOrder:
        """The order for the whole range."""
        return self.candidates[self.whole.order]

    def at(self, sizes: Mapping[str, int]) -> CandidateOrder:
        """The order for a shape."""
        shape = dict(sizes)
        part = next((part for part in self.parts if shape in part), self.whole)
        return self.candidates[part.order]


def symbolic_orders(
    problem: SymbolicProblem,
    limits: Limits | None = None,
    interrupt: threading.Event | None = None,
    *,
    known: Mapping[str, Sequence[int]] = MappingProxyType({}),
    tolerance: Fraction = _TOLERANCE,
    most_parts: int = _MOST_PARTS,
) -> Outcome[SymbolicOrders]:
    """Orders for the range of a problem; never worse than program order at any sample shape where that is best.

    Args:
        limits: of the searches for single shapes, which share them; lists are always made.
        known: further orders that compete, by origin.
        tolerance: share of the peak by which one order may be above the best candidate before the range is cut.
        most_parts: boxes into which the range is cut at most.
    """
    guard = LimitGuard(limits or Limits(), interrupt)
    candidates, searched = collect_orders(problem, guard, interrupt, known)
    result = _certified(problem, candidates, searched, tolerance, most_parts)
    reason = TerminationReason.OPTIMAL if result.excess_over_bound == 0 else TerminationReason.FEASIBLE
    return Outcome(
        result, Termination(reason, guard.exhausted(0), _in_words(result)), guard.seconds(), guard.work
    )


def _certified(
    problem: SymbolicProblem,
    candidates: tuple[CandidateOrder, ...],
    searched: tuple[SearchedShape, ...],
    tolerance: Fraction,
    most_parts: int,
) -> SymbolicOrders:
    store = problem.store
    peaks = [candidate.peak.sizes for candidate in candidates]
    (whole,) = best_parts(store.dims, store.relations, peaks, tolerance=tolerance, most_parts=1)
    parts = best_parts(store.dims, store.relations, peaks, tolerance=tolerance, most_parts=most_parts)
    known = candidates[whole.order].peak.known
    return SymbolicOrders(
        candidates, whole, parts, proved_excess(store, known, least_bytes(problem)), searched
    )


def least_bytes(problem: SymbolicProblem) -> tuple[KnownSize, ...]:
    """Expressions that no order has a lower peak than: what must be there while an operation runs, of each operation."""
    structure = problem.structure
    always = tuple(
        index
        for index, storage in enumerate(structure.storages)
        if storage.resident or (storage.output and structure.from_start[index])
    )
    there = set(always)
    base = problem.total(always)
    sizes = [base]
    for index, op in enumerate(structure.ops):
        own = tuple(storage for storage in touched(op) if storage not in there)
        sizes.append(base + problem.total(own) + problem.store.known(problem.workspace[index]))
    return largest(problem.store, sizes)


def _in_words(result: SymbolicOrders) -> str:
    whole = result.whole
    if whole.excess is None:
        return f"{len(result.parts)} parts of the range have an order each; over all of it nothing is proved of one"
    share = f"{float(whole.excess):.1%}"
    return f"for every shape in the range one order is within {share} of the best of {len(result.candidates)}"
