"""In what order a program for all shapes runs: updates as early as is free, or an order that is proved to need no more.

The order of `planner.strategies.early_updates` is found at one shape. It competes with those of
`schedule.symbolic.orders`, whose peaks are expressions. One of these is taken only with two reasons: at no shape of the
ranges its peak is higher, which is proved, and it is lower at some.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Final

from neaptide.outcome import Limits
from neaptide.planner.objective import PlanningProblem
from neaptide.planner.points.shaped import ShapedProgram
from neaptide.planner.strategies import early_updates
from neaptide.schedule.symbolic.orders import symbolic_orders
from neaptide.schedule.symbolic.peaks import SymbolicPeak, is_never_higher
from neaptide.schedule.symbolic.problem import symbolic_problem

EARLY: Final = "updates as early as is free"
_MOST_WORK: Final = 100_000  # states; searches for single shapes of the tiny models end within 500


@dataclass(frozen=True, slots=True)
class OrderForRange:
    """An order of first executions."""

    sequence: tuple[int, ...]  # nodes
    peak: SymbolicPeak | None  # where nothing is evicted; None without dims, or with loops
    reason: str  # one sentence for the user: what made the order, and what is proved of it


def early_order(shaped: ShapedProgram) -> tuple[int, ...]:
    """Program order with updates as early as is free at the sample."""
    return early_updates.solve(PlanningProblem(shaped.problem, 0), Limits()).require().sequence


def orders_for_range(
    shaped: ShapedProgram, limits: Limits, interrupt: threading.Event | None = None
) -> tuple[OrderForRange, ...]:
    """The order with early updates; and the best order for the range where that is never higher and somewhere lower."""
    problem, graph = shaped.problem, shaped.graph
    early = early_order(shaped)
    if not graph.dims or shaped.loops:
        return (OrderForRange(early, None, EARLY),)
    work = _MOST_WORK if limits.work is None else min(limits.work, _MOST_WORK)
    symbolic = symbolic_problem(
        graph, workspace=dict(enumerate(shaped.workspace_sizes)), device=problem.device
    )
    found = symbolic_orders(
        symbolic, Limits(limits.time_s, work, limits.seed), interrupt, known={EARLY: early}
    )
    start = next(candidate for candidate in found if candidate.order == early)
    first = OrderForRange(early, start.peak, start.origin)
    lower = [c for c in found if _is_lower(c.peak, start.peak)]
    if not lower:
        return (first,)
    best = min(lower, key=lambda c: sum(a / b for a, b in _samples(c.peak, start.peak)))
    shapes = zip(symbolic.store.samples(), _samples(best.peak, start.peak), strict=True)
    shape = next(shape for shape, (own, other) in shapes if own < other)
    where = ", ".join(f"{dim} = {size}" for dim, size in shape.items())
    reason = (
        f"{best.origin}: at no shape in the ranges above {start.origin}, as is proved, and below at {where}"
    )
    return first, OrderForRange(best.order, best.peak, reason)


def _is_lower(peak: SymbolicPeak, other: SymbolicPeak) -> bool:
    """Whether a peak is lower at some sample shape, and proved to be higher at no shape."""
    pairs = _samples(peak, other)
    if any(a > b for a, b in pairs) or not any(a < b for a, b in pairs):
        return False
    return is_never_higher(peak, other)


def _samples(peak: SymbolicPeak, other: SymbolicPeak) -> list[tuple[int, int]]:
    return list(zip(peak.samples, other.samples, strict=True))
