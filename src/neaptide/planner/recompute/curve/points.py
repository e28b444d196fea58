"""What a curve consists of: a plan for each budget, and the archive of plans that it is taken from."""

from __future__ import annotations

from dataclasses import dataclass, field

from neaptide.planner.objective import PlannedSequence


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The best plan for one budget.

    Attributes:
        budget_bytes: highest peak with workspace that was asked for.
        peak_bytes: of the plan, with workspace; above the budget when that was not reached.
        seconds: of the plan.
        bound_seconds: no plan with this order of first executions within the budget is faster; infinite when there is
            no such plan.
        strategy: what found it.
        sequence: node ids in running order; a repeated id is a recomputation.
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
    """Plans by budget.

    Attributes:
        points: by budget, the largest first; time never falls from one to the next that is reached.
        baseline_peak_bytes: of program order, with workspace.
        baseline_seconds: of program order.
        lowest_peak_bytes: the lowest peak found.
        lowest_bound_bytes: no plan with this order of first executions has a lower peak.
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


class PlanArchive:
    """Plans of which none is as fast as another with as low a peak.

    Attributes:
        plans: in the order in which they were found.
    """

    def __init__(self) -> None:
        self.plans: list[PlannedSequence] = []

    def note(self, found: PlannedSequence) -> None:
        """Keep a plan unless another is as fast with as low a peak; those that it beats go. O(plans)."""
        peak, seconds = found.peak_with_workspace_bytes, found.seconds
        if any(p.peak_with_workspace_bytes <= peak and p.seconds <= seconds for p in self.plans):
            return
        self.plans = [p for p in self.plans if p.peak_with_workspace_bytes < peak or p.seconds < seconds]
        self.plans.append(found)

    def drop(self, plan: PlannedSequence) -> None:
        """Keep a plan no longer. O(plans)."""
        self.plans = [p for p in self.plans if p is not plan]

    def best(self, budget_bytes: int) -> PlannedSequence | None:
        """The fastest plan within a budget. O(plans)."""
        within = [p for p in self.plans if p.peak_with_workspace_bytes <= budget_bytes]
        return min(within, key=lambda p: p.rank(budget_bytes), default=None)

    def lowest_within(self, seconds: float) -> PlannedSequence | None:
        """The plan with the lowest peak among those that take no longer; None when each does. O(plans)."""
        fast = [p for p in self.plans if p.seconds <= seconds]
        return min(fast, key=lambda p: p.peak_with_workspace_bytes, default=None)

    def fastest(self) -> PlannedSequence:
        """The plan that takes least; there must be one."""
        return min(self.plans, key=lambda p: p.seconds)

    def lowest(self) -> PlannedSequence:
        """The plan with the lowest peak; there must be one."""
        return min(self.plans, key=lambda p: p.peak_with_workspace_bytes)
