"""The lowest peak with offload: within a limit on time, or at any price.

A plan by recomputation alone is the start. What lies between its peak and the least bytes that any operation needs is
halved: each budget in between is met by a plan that is fast enough, or it is not. The lowest peak is then asked for the
least time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeAlias

from neaptide.outcome import LimitGuard, Limits, Outcome
from neaptide.planner.offload.carried import OffloadPlan
from neaptide.planner.offload.problem import OffloadProblem
from neaptide.planner.recompute.settings import SETTINGS

Choose: TypeAlias = Callable[[OffloadProblem, Limits, threading.Event | None], Outcome[OffloadPlan]]
"""What finds a fast plan within a budget."""
_HALVINGS: Final = 8


def lowest_peak(
    problem: OffloadProblem,
    choose: Choose,
    limits: Limits,
    interrupt: threading.Event | None = None,
) -> Outcome[OffloadPlan]:
    """The plan of the lowest peak found that takes no longer than a limit; the best known plan where none is as fast.

    O(halvings x what `choose` takes). Plans are within the budget of the problem in any case; `best` and `bound` of the
    outcome are bytes, and the bound holds for all plans.
    """
    guard, most = LimitGuard(limits, interrupt), problem.most_seconds

    def rank(plan: OffloadPlan) -> tuple[bool, int, float]:
        planned = plan.planned
        return planned.seconds > most, planned.peak_with_workspace_bytes, planned.seconds

    def found(asked: OffloadProblem, parts: int) -> OffloadPlan | None:
        """A plan within a budget that is fast enough."""
        outcome = choose(asked, guard.left(parts), interrupt)
        guard.exhausted(outcome.work)
        planned = outcome.require().planned
        is_good = planned.peak_with_workspace_bytes <= asked.budget_bytes and planned.seconds <= most
        return outcome.require() if is_good else None

    least = problem.host.least_bytes(problem.step)
    best, low = min((OffloadPlan(plan) for plan in problem.known), key=rank), least - 1
    if best.planned.seconds <= most:
        for left in range(_HALVINGS, 0, -1):
            peak = best.planned.peak_with_workspace_bytes
            if peak - low <= max(SETTINGS.hardly_more * peak, 1.0) or guard.check_now():
                break
            middle = (low + peak) // 2
            lower = found(replace(problem, budget_bytes=middle), left + 1)
            best, low = (best, middle) if lower is None else (min(best, lower, key=rank), low)
        if not guard.check_now():
            peak = best.planned.peak_with_workspace_bytes
            faster = found(replace(problem, budget_bytes=peak, longest=None), 1)
            best = best if faster is None else min(best, faster, key=rank)
    return guard.finish(best, best=best.planned.peak_with_workspace_bytes, bound=least)
