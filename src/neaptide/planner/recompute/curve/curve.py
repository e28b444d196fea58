"""The curve of time against memory, from the peak without recomputation down to the lowest peak found, in one search.

A ladder of plans from chain programs comes first, then the floor; what is proved says how far each budget is from its
bound. From then on the budget that is worth most is improved by the next thing that has not been tried on it: the plan of
a smaller budget with repetitions taken back, or that of a larger one brought down. What brings nothing halves what the
budget is worth, so work goes where it helps.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from neaptide.errors import UsageError
from neaptide.outcome import Limits, Outcome, Termination, TerminationReason
from neaptide.planner.recompute.curve.search import BY_PRICES, RecomputeSearch
from neaptide.planner.recompute.settings import SETTINGS
from neaptide.schedule.problem import StepProblem
from neaptide.units import format_bytes

DEFAULT_POINTS: Final = 20
_TRIES_PER_NODE: Final = 100  # of all attempts together
_TRIES_BY_PRICES: Final = 2500
_WORTH_MOST: Final = 0.02  # of the baseline's time, that the gap of one budget counts for
_HELPED: Final = 0.9  # what an attempt leaves of a gap at most if it has helped
_NOTHING_LEFT: Final = object()


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The best plan for one budget. Bytes are with workspace; they are above the budget when that was not reached.

    No plan with this order of first executions within the budget is faster than `bound_seconds`, infinite when there is no
    such plan.
    """

    budget_bytes: int
    peak_bytes: int
    seconds: float
    bound_seconds: float
    strategy: str
    sequence: tuple[int, ...] = field(repr=False)

    @property
    def is_reached(self) -> bool:
        """Whether the plan is within the budget."""
        return self.peak_bytes <= self.budget_bytes


@dataclass(frozen=True, slots=True)
class RecomputeCurve:
    """Plans by budget, the largest first, against program order; time never falls from one to the next that is reached.

    No plan with the order of first executions of these has a peak below `lowest_bound_bytes`.
    """

    points: tuple[CurvePoint, ...]
    baseline_peak_bytes: int
    baseline_seconds: float
    lowest_peak_bytes: int
    lowest_bound_bytes: int

    def overhead(self, seconds: float) -> float:
        """How much longer than the baseline, as a fraction of it; 0 for a baseline that takes no time."""
        return seconds / self.baseline_seconds - 1.0 if self.baseline_seconds else 0.0

    def lowest_within(self, seconds: float) -> CurvePoint | None:
        """The point with the lowest peak that takes no longer; None when each does."""
        fast = [point for point in self.points if point.is_reached and point.seconds <= seconds]
        return min(fast, key=lambda point: point.peak_bytes, default=None)


def recompute_curve(
    step: StepProblem,
    budgets: Sequence[int] | None = None,
    *,
    count: int = DEFAULT_POINTS,
    limits: Limits | None = None,
    interrupt: threading.Event | None = None,
) -> Outcome[RecomputeCurve]:
    """Plans for many budgets in one search: peaks with workspace, by default `count` even steps down to the lowest found.

    Without a time limit the answer is the same on every machine. `OPTIMAL`: each plan is proved fastest, or its budget
    proved out of reach, for its order of first executions.

    Raises:
        UsageError: fewer than two budgets to choose, or none given.
    """
    if budgets is None and count < 2:
        raise UsageError(f"a curve cannot have {count} points", next_step="ask for at least two")
    if budgets is not None and not budgets:
        raise UsageError("a curve needs budgets", next_step="give some, or none at all for even steps")
    search = RecomputeSearch(step, limits or Limits(), interrupt)
    search.hoist_updates()
    search.order_again()
    lowest = min(budgets) if budgets else 0
    search.climb_down(lowest, len(set(budgets)) if budgets else count)
    search.sink_lowest(lowest)
    chosen = _even_steps(search, count) if budgets is None else sorted(set(budgets), reverse=True)
    _improve(search, chosen)
    if budgets is None:
        # A lower peak may have been met on the way.
        chosen[-1] = min(chosen[-1], search.archive.lowest().peak_with_workspace_bytes)
    return _outcome(search, chosen)


def _even_steps(search: RecomputeSearch, count: int) -> list[int]:
    """Largest first."""
    high = search.baseline.peak_with_workspace_bytes
    low = search.archive.lowest().peak_with_workspace_bytes
    return sorted({high - (high - low) * k // (count - 1) for k in range(count)}, reverse=True)


def _improve(search: RecomputeSearch, budgets: Sequence[int]) -> None:
    """Better plans for some budgets, until they are close to what is proved or nothing is left to try."""
    search.bounds.prove_floor(search.archive.lowest().peak_with_workspace_bytes)
    search.bounds.prove(budgets)
    attempts = {budget: _attempts(search, budget) for budget in budgets}
    misses = dict.fromkeys(budgets, 0)
    most = search.guard.work + _TRIES_PER_NODE * search.step.node_count
    is_certified = False
    while search.goes_on() and search.guard.work < most:
        worth = {budget: _worth(search, budget) / 2 ** misses[budget] for budget in attempts}
        budget = max(worth, key=lambda b: (worth[b], b), default=None)
        if budget is None or worth[budget] < SETTINGS.near:
            if is_certified:
                break
            # What seems far may only be badly bounded.
            search.certify_nearest(budgets)
            is_certified = True
            continue
        before = search.gap(budget)
        if next(attempts[budget], _NOTHING_LEFT) is _NOTHING_LEFT:
            del attempts[budget]
        else:
            misses[budget] = 0 if search.gap(budget) < _HELPED * before else misses[budget] + 1
    if not is_certified and search.goes_on():
        search.certify_nearest(budgets)
    below = None
    for budget in sorted(budgets):
        # Once more from the best plan for the budget below.
        best = search.archive.best(budget)
        if search.goes_on() and best is not None and best is below and not search.is_settled(budget):
            search.take_back(best, budget)
        below = search.archive.best(budget)


def _attempts(search: RecomputeSearch, budget: int) -> Iterator[None]:
    """What is cheap first, then prices."""
    yield from search.attempts(budget)
    best = search.archive.best(budget)
    if best is not None and search.goes_on():
        search.polish(BY_PRICES, best, budget, search.part_of_work(_TRIES_BY_PRICES))
        yield


def _worth(search: RecomputeSearch, budget: int) -> float:
    """What an attempt on a budget may win, as a share of the baseline's time."""
    gap = search.gap(budget)
    return 0.0 if search.is_settled(budget) or gap <= SETTINGS.close_enough else min(gap, _WORTH_MOST)


def _outcome(search: RecomputeSearch, budgets: Sequence[int]) -> Outcome[RecomputeCurve]:
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
    limit, reason = search.ended()
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


def _point(search: RecomputeSearch, budget: int) -> CurvePoint:
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
