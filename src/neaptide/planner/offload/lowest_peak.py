"""The lowest peak with stays on the host: within a limit on time, or at any price.

A plan by recomputation alone is the start. What lies between its peak and the least bytes that any operation needs is
halved: each budget in between is met by a plan that is fast enough, or it is not. The lowest peak is then asked for the
least time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from neaptide.outcome import LimitGuard, Limits, Outcome
from neaptide.planner.offload.carried import OffloadPlan
from neaptide.planner.offload.problem import OffloadProblem
from neaptide.planner.offload.settings import SETTINGS as STAYS
from neaptide.planner.recompute.settings import SETTINGS

ChooseStays: TypeAlias = Callable[[OffloadProblem, Limits, threading.Event | None], Outcome[OffloadPlan]]
"""What finds a fast plan within a budget."""


def lowest_peak(
    problem: OffloadProblem,
    choose: ChooseStays,
    limits: Limits,
    interrupt: threading.Event | None = None,
) -> Outcome[OffloadPlan]:
    """The plan of the lowest peak found that takes no longer than a limit; the best known plan where none is as fast.

    O(halvings x what `choose` takes).

    Args:
        problem: the step and its limit on time, which is not None; plans are within its budget in any case.
        choose: finds plans within a budget.
        limits: of the whole search.
        interrupt: set it to stop; the best answer so far is returned.

    Returns:
        An outcome whose `best` and `bound` are bytes; the bound holds for all plans.
    """
    guard = LimitGuard(limits, interrupt)
    search = _Halving(problem, choose, guard, interrupt)
    if search.best.planned.seconds <= problem.most_seconds:
        search.run()
    best, least = search.best, problem.host.least_bytes(problem.step)
    return guard.finish(best, best=best.planned.peak_with_workspace_bytes, bound=least)


@dataclass
class _Halving:
    """The best plan so far, and what it was asked with."""

    problem: OffloadProblem
    choose: ChooseStays
    guard: LimitGuard
    interrupt: threading.Event | None

    def __post_init__(self) -> None:
        self.best = min((OffloadPlan(plan) for plan in self.problem.known), key=self._rank)

    def run(self) -> None:
        """Halve, then look for the least time at the lowest peak."""
        low = self.problem.host.least_bytes(self.problem.step) - 1
        for left in range(STAYS.halvings, 0, -1):
            peak = self.best.planned.peak_with_workspace_bytes
            if peak - low <= max(SETTINGS.hardly_more * peak, 1.0) or self.guard.check_now():
                break
            middle = (low + peak) // 2
            if not self._ask(replace(self.problem, budget_bytes=middle), left + 1):
                low = middle
        peak = self.best.planned.peak_with_workspace_bytes
        if not self.guard.check_now():
            self._ask(replace(self.problem, budget_bytes=peak, longest=None), 1)

    def _ask(self, problem: OffloadProblem, parts: int) -> bool:
        """Whether a plan within a budget is fast enough; it is the best one then, if it is."""
        outcome = self.choose(problem, self.guard.left(parts), self.interrupt)
        self.guard.exhausted(outcome.work)
        found = outcome.require()
        if found.planned.peak_with_workspace_bytes > problem.budget_bytes:
            return False
        if found.planned.seconds > self.problem.most_seconds:
            return False
        self.best = min(self.best, found, key=self._rank)
        return True

    def _rank(self, plan: OffloadPlan) -> tuple[bool, int, float]:
        """Lower is better: fast enough, then the peak, then the seconds."""
        planned = plan.planned
        is_slow = planned.seconds > self.problem.most_seconds
        return is_slow, planned.peak_with_workspace_bytes, planned.seconds
