"""The curve of time against memory, from the peak without recomputation down to the lowest peak found, in one search.

Every plan that is met on the way is kept in an archive, so that one found for a small budget counts for all larger
ones: time never rises with the budget.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

from neaptide.errors import UsageError
from neaptide.outcome import Limits, Outcome, Termination, TerminationReason
from neaptide.planner.recompute.curve.points import CurvePoint, RecomputeCurve
from neaptide.planner.recompute.curve.search import CurveSearch
from neaptide.planner.recompute.settings import SETTINGS
from neaptide.schedule.problem import StepProblem
from neaptide.units import format_bytes

DEFAULT_POINTS: Final = 20


def recompute_curve(
    step: StepProblem,
    budgets: Sequence[int] | None = None,
    *,
    count: int = DEFAULT_POINTS,
    limits: Limits | None = None,
    interrupt: threading.Event | None = None,
) -> Outcome[RecomputeCurve]:
    """Plans for many budgets in one search.

    Args:
        step: the program.
        budgets: highest peaks with workspace, in any order; by default `count` even steps from the baseline's peak
            to the lowest peak found.
        count: of budgets, when none are given; at least 2.
        limits: time, work and seed. Without a time limit the answer is the same on every machine.
        interrupt: set it to stop; the best plans so far are returned.

    Returns:
        An outcome with a value always. `OPTIMAL`: each plan is proved fastest, or its budget proved out of reach,
        for its order of first executions.

    Raises:
        UsageError: fewer than two budgets to choose, or none given.
    """
    if budgets is None and count < 2:
        raise UsageError(f"a curve cannot have {count} points", next_step="ask for at least two")
    if budgets is not None and not budgets:
        raise UsageError("a curve needs budgets", next_step="give some, or none at all for even steps")
    search = CurveSearch(step, limits or Limits(), interrupt)
    search.find_floor(min(budgets) if budgets else 0, len(set(budgets)) if budgets else count)
    chosen = _even_steps(search, count) if budgets is None else sorted(set(budgets), reverse=True)
    search.improve(chosen)
    if budgets is None:
        # A lower peak may have been met on the way.
        chosen[-1] = min(chosen[-1], search.archive.lowest().peak_with_workspace_bytes)
    return _outcome(search, chosen)


def _even_steps(search: CurveSearch, count: int) -> list[int]:
    """Largest first."""
    high = search.baseline.peak_with_workspace_bytes
    low = search.archive.lowest().peak_with_workspace_bytes
    return sorted({high - (high - low) * k // (count - 1) for k in range(count)}, reverse=True)


def _outcome(search: CurveSearch, budgets: Sequence[int]) -> Outcome[RecomputeCurve]:
    before, lowest = search.baseline, search.archive.lowest()
    points = tuple(_point(search, budget) for budget in budgets)
    bound_bytes = min(search.bounds.floor_bytes, lowest.peak_with_workspace_bytes)
    curve = RecomputeCurve(
        points,
        before.peak_with_workspace_bytes,
        before.seconds,
        lowest.peak_with_workspace_bytes,
        bound_bytes,
    )
    slack = SETTINGS.proved * search.step.baseline_seconds
    proved = sum(
        point.seconds - point.bound_seconds <= slack
        if point.is_reached
        else point.bound_seconds == float("inf")
        for point in points
    )
    limit, reason = search.engine.ended()
    if proved == len(points):
        limit, reason = None, TerminationReason.OPTIMAL
    peak = format_bytes(lowest.peak_with_workspace_bytes)
    floor = (
        f"the lowest peak is {peak}, and proved to be for this order of first executions"
        if bound_bytes == lowest.peak_with_workspace_bytes
        else f"the lowest peak found is {peak}, none is below {format_bytes(bound_bytes)}"
    )
    detail = f"{proved} of {len(points)} budgets proved; {floor}"
    return Outcome(curve, Termination(reason, limit, detail), search.guard.seconds(), search.guard.work)


def _point(search: CurveSearch, budget: int) -> CurvePoint:
    best = search.archive.best(budget)
    bound = search.bounds.seconds(budget)
    if best is not None:
        # Within rounding a bound may be above its plan; further above it is wrong, and not shown.
        is_sound = bound <= best.seconds + SETTINGS.contradiction * search.step.baseline_seconds
        bound = min(bound if is_sound else search.step.baseline_seconds, best.seconds)
    shown = best or search.archive.lowest()
    return CurvePoint(
        budget, shown.peak_with_workspace_bytes, shown.seconds, bound, shown.strategy, shown.sequence
    )
