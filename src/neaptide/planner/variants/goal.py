"""What is asked of a search over variants: one measure that all of them are ranked by."""

from __future__ import annotations

from dataclasses import dataclass

from neaptide.budget import Budget
from neaptide.plans import PlannedProgram


@dataclass(frozen=True, slots=True)
class Goal:
    """The fewest bytes within `longest` seconds, or where that is None the least time within the bytes `allowed`."""

    allowed: int
    longest: float | None

    @staticmethod
    def of(budget: Budget, allowed: int, baseline_seconds: float) -> Goal:
        """What a budget asks for."""
        if budget.peak is not None and not budget.is_min:
            return Goal(allowed, None)
        limit = budget.resolve_latency(baseline_seconds)
        if limit is None:
            limit = float("inf") if budget.is_min else baseline_seconds
        return Goal(allowed, limit)

    def rank(self, peak_bytes: int, seconds: float) -> tuple[float, float, float]:
        """Lower is better: what is beyond the limit, what is asked for, the rest."""
        if self.longest is not None:
            return max(seconds - self.longest, 0.0), float(peak_bytes), seconds
        return float(max(peak_bytes - self.allowed, 0)), seconds, float(peak_bytes)

    def rank_of(self, program: PlannedProgram) -> tuple[float, float, float]:
        """The same of a plan."""
        made = program.predictions
        return self.rank(made.peak_with_workspace_bytes, made.seconds)
