"""Dynamic tensor rematerialization without neighbourhoods: seconds of the unit alone, per byte and staleness (h_local)."""

from __future__ import annotations

import threading
from typing import Final

from neaptide.outcome import Limits, Outcome
from neaptide.planner.objective import PlannedSequence, PlanningProblem
from neaptide.planner.strategies.dtr import solve_with

NAME: Final = "dtr_local"


def solve(
    problem: PlanningProblem, limits: Limits, interrupt: threading.Event | None = None
) -> Outcome[PlannedSequence]:
    """What the policy does under the budget; the start where that is no better. Work is executions."""
    return solve_with(NAME, problem, limits, interrupt)
