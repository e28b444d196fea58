"""The question that a search for offload answers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from neaptide.planner.objective import PlannedSequence
from neaptide.planner.offload.carried import OffloadPlan
from neaptide.planner.offload.host import HostSpace
from neaptide.planner.recompute.settings import SETTINGS
from neaptide.schedule.problem import StepProblem


@dataclass(frozen=True, slots=True)
class OffloadProblem:
    """A step, its budget and a host.

    Attributes:
        step: the program.
        budget_bytes: highest bytes on the device, workspace included.
        host: room there, and links.
        known: plans by recomputation alone with one order of first executions, at least one. No answer is worse.
        longest: seconds that are fast enough, and beyond which a plan is of no use; None where the least are asked for.
    """

    step: StepProblem
    budget_bytes: int
    host: HostSpace
    known: Sequence[PlannedSequence]
    longest: float | None = None

    @property
    def order(self) -> tuple[int, ...]:
        """Of first executions."""
        return tuple(dict.fromkeys(self.known[0].sequence))

    @property
    def most_seconds(self) -> float:
        """Beyond which a plan is of no use."""
        return math.inf if self.longest is None else self.longest

    def best_known(self) -> OffloadPlan:
        """The best of the plans without offload."""
        return min((OffloadPlan(plan) for plan in self.known), key=lambda plan: plan.rank(self.budget_bytes))

    def is_enough(self, planned: PlannedSequence) -> bool:
        """Whether a plan is within the budget and cannot be faster by an amount that matters."""
        enough = max((1.0 + SETTINGS.close_enough) * self.step.baseline_seconds, self.longest or 0.0)
        return planned.peak_with_workspace_bytes <= self.budget_bytes and planned.seconds <= enough
