"""The baseline: the program as it was captured."""

from __future__ import annotations

import threading
from typing import Final

from neaptide.outcome import LimitGuard, Limits, Outcome
from neaptide.planner.objective import PlannedSequence, PlanningProblem
from neaptide.schedule.problem import StepProblem

NAME: Final = "program_order"


def solve(
    problem: PlanningProblem, limits: Limits, interrupt: threading.Event | None = None
) -> Outcome[PlannedSequence]:
    """Program order, evaluated. O(size of the problem)."""
    guard = LimitGuard(limits, interrupt)
    value = baseline(problem.step)
    return guard.finish(
        value, best=value.peak_with_workspace_bytes, bound=problem.step.order_lower_bound_bytes
    )


def baseline(step: StepProblem) -> PlannedSequence:
    """Bytes and seconds of program order."""
    return PlannedSequence.evaluate(step, range(step.node_count), NAME)
