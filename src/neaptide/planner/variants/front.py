"""The front of a program: plans of which none is both lower and faster than another."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from neaptide.errors import UsageError
from neaptide.outcome import Limits
from neaptide.planner.variants.settings import SETTINGS
from neaptide.plans import PlannedProgram, TriedVariant

Search = Callable[[float | None, Limits], PlannedProgram]
"""A search for the lowest peak within so many seconds, or within any."""


@dataclass(frozen=True, slots=True)
class VariantFront:
    """Plans by the time that they take.

    Attributes:
        points: the fastest first, peaks with workspace falling.
        baseline_peak_bytes: of program order, with workspace.
        baseline_seconds: of program order.
    """

    points: tuple[TriedVariant, ...]
    baseline_peak_bytes: int
    baseline_seconds: float

    def overhead(self, seconds: float) -> float:
        """How much longer than the baseline, as a fraction of it; 0 for a baseline that takes no time."""
        return seconds / self.baseline_seconds - 1.0 if self.baseline_seconds else 0.0


def variants_front(search: Search, limits: Limits, count: int) -> VariantFront:
    """Search for the lowest peak, and then within limits of time in even steps from the baseline's to that plan's.

    Each plan that is met counts for every limit, so peaks never rise with the time that is allowed.

    Args:
        search: one search; each gets a part of the limits.
        limits: of all together.
        count: of searches, at least 2.

    Raises:
        UsageError: fewer than two searches.
    """
    if count < 2:
        raise UsageError(f"a front cannot have {count} points", next_step="ask for at least two")
    found = search(None, part_of(limits, SETTINGS.lowest_share))
    made = found.predictions
    met = _met(found)
    least, most = made.baseline_seconds, max(made.seconds, made.baseline_seconds)
    for number in range(count - 1):
        longest = least + (most - least) * number / (count - 1)
        met += _met(search(longest, part_of(limits, (1.0 - SETTINGS.lowest_share) / (count - 1))))
    peak = made.baseline_peak_with_workspace_bytes
    baseline = TriedVariant("program order", peak, least)
    return VariantFront(undominated([baseline, *met]), peak, least)


def undominated(plans: Iterable[TriedVariant]) -> tuple[TriedVariant, ...]:
    """Plans of which none is both as low and as fast as another, the fastest first. O(n log n)."""
    front: list[TriedVariant] = []
    for plan in sorted(plans, key=lambda plan: (plan.seconds, plan.peak_bytes)):
        if not front or plan.peak_bytes < front[-1].peak_bytes:
            front.append(plan)
    return tuple(front)


def part_of(limits: Limits, share: float) -> Limits:
    """A share of the time and of the work; the same seed."""
    time_s = None if limits.time_s is None else share * limits.time_s
    work = None if limits.work is None else max(int(share * limits.work), 1)
    return Limits(time_s, work, limits.seed)


def _met(program: PlannedProgram) -> list[TriedVariant]:
    """All plans that a search met, the one that it chose among them."""
    if program.parts is not None:
        return list(program.parts.tried)
    made = program.predictions
    return [TriedVariant(program.strategy, made.peak_with_workspace_bytes, made.seconds)]
