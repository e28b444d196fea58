"""What is asked of a search over variants, and what recomputation would make of an estimate: how variants are ranked."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log, log2
from typing import Final

from neaptide.budget import Budget
from neaptide.planner.objective import PlannedSequence
from neaptide.planner.variants.estimate import Estimate
from neaptide.planner.variants.settings import SETTINGS
from neaptide.plans import PlannedProgram

# Of a peak, what recomputation leaves at the least, whatever the time.
_LEAST_SHARE: Final = 0.1


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


@dataclass(frozen=True, slots=True)
class Price:
    """What recomputation costs where nothing is split: the plan without variants says it.

    Attributes:
        before_seconds: of the program in its own order.
        share_per_second: part of what a peak is above `persistent_bytes` that a second of recomputation takes away, on the way
            from the baseline to the plan.
        peak_bytes: of the plan.
        left: of the peak of the baseline, what the plan leaves.
        priced: variants that were priced exactly in program order, each with the seconds that its estimate was short of.
            Where large results are not made whole any more, parts are faster, which estimates do not see.
        persistent_bytes: of the caller, which are there whatever is recomputed.
    """

    before_seconds: float
    share_per_second: float
    peak_bytes: int = 0
    left: float = 1.0
    priced: tuple[tuple[Estimate, float], ...] = ()
    persistent_bytes: int = 0

    @staticmethod
    def of(before: PlannedSequence, plain: PlannedSequence, persistent_bytes: int) -> Price:
        """Of a plan beside the program order of the same graph, in which the caller owns so many bytes."""
        return Price.of_bytes(
            before.seconds,
            before.peak_with_workspace_bytes,
            longer=plain.seconds - before.seconds,
            peak=plain.peak_with_workspace_bytes,
            persistent_bytes=persistent_bytes,
        )

    @staticmethod
    def of_bytes(seconds: float, before: int, *, longer: float, peak: int, persistent_bytes: int) -> Price:
        """Of a plan that takes longer than its baseline, and the peaks of both."""
        saved = (before - peak) / max(before - persistent_bytes, 1)
        # Without recomputation nothing is known of it: a tenth of the step's time for a tenth of its peak.
        per_second = saved / longer if longer > 0 and saved > 0 else 1.0 / max(seconds, 1e-9)
        left = min(peak / max(before, 1), 1.0)
        return Price(seconds, per_second, peak, left, persistent_bytes=persistent_bytes)

    def after(self, before: PlannedSequence, plain: PlannedSequence) -> Price:
        """The same for a variant that was planned; what parts take in other regions is not known of it."""
        made = Price.of(before, plain, self.persistent_bytes)
        repeats = plain.seconds > before.seconds
        return made if repeats else replace(made, share_per_second=self.share_per_second)

    def seen(self, estimate: Estimate, seconds: float) -> Price:
        """With what one variant takes in program order, priced exactly."""
        return replace(self, priced=(*self.priced, (estimate, seconds - self.seconds_of(estimate))))

    def rank(self, estimate: Estimate, goal: Goal) -> tuple[float, ...]:
        """Lower is better: the bytes, or the seconds, that recomputation would bring a variant to."""
        seconds = self.seconds_of(estimate) + self._short_of(estimate)
        return self.brought(estimate.peak_bytes, seconds, goal, self._doubt(estimate))

    def brought(self, peak: float, seconds: float, goal: Goal, doubt: float = 0.0) -> tuple[float, ...]:
        """Lower is better: the bytes, or the seconds, that recomputation would bring a program to, from those in its own order.

        It may be too long by the seconds of `doubt` and still be looked at.
        """
        if goal.longest is not None:
            slack = max(goal.longest - seconds, 0.0)
            left = max(1.0 - self.share_per_second * slack, _LEAST_SHARE)
            least = peak - (1.0 - left) * self._above_persistent(peak)
            return max(seconds - goal.longest - doubt, 0.0), least
        above = max(peak - goal.allowed, 0.0) / max(self._above_persistent(peak), 1.0)
        # Where recomputation did not bring the plan within the bytes, it takes away no more of another graph's peak.
        least = peak * self.left if self.peak_bytes > goal.allowed else 0.0
        return max(least - goal.allowed, 0.0), seconds + above / self.share_per_second, peak

    def _above_persistent(self, peak: float) -> float:
        return max(peak - self.persistent_bytes, 0.0)

    def seconds_of(self, estimate: Estimate) -> float:
        """That a variant takes by its estimate."""
        return self.before_seconds + estimate.seconds + estimate.added_seconds

    def _doubt(self, estimate: Estimate) -> float:
        """Seconds by which an estimate may be too long: no more than those were off that were priced exactly."""
        usual = SETTINGS.doubt * self._doublings(estimate) * self.before_seconds
        return min(usual, max((abs(seconds) for _, seconds in self.priced), default=usual))

    def _doublings(self, estimate: Estimate) -> float:
        """How far the next number of parts is that was priced of the same choice; 1 where none was."""
        same = [seen[0].parts for seen in self.priced if seen[0].choice is estimate.choice]
        return min((abs(log2(parts / estimate.parts)) for parts in same), default=1.0)

    def _short_of(self, estimate: Estimate) -> float:
        """What an estimate is about to be short of: as another one of the same choice, else of one that is about as large."""
        same = [seen for seen in self.priced if seen[0].choice is estimate.choice]
        if same:
            other, seconds = min(same, key=lambda seen: abs(log(seen[0].parts / estimate.parts)))
            return _in_parts(seconds, other.parts, estimate.parts)
        if not self.priced:
            return 0.0
        other, seconds = min(
            self.priced, key=lambda seen: abs(seen[0].choice.nbytes - estimate.choice.nbytes)
        )
        # What is saved is saved by bytes.
        share = min(estimate.choice.nbytes / max(other.choice.nbytes, 1), 1.0)
        return share * _in_parts(seconds, other.parts, estimate.parts)


def _in_parts(seconds: float, known: int, parts: int) -> float:
    """What an estimate is short of in so many parts, where it is known for another number of them.

    What parts save, they save in any number. What they lose grows with their number, and more slowly than it.
    """
    return seconds * log(parts) / log(known) if seconds > 0 else seconds
