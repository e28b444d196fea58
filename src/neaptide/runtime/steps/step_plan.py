"""A plan of a step as data, and what runs under it."""

from __future__ import annotations

from dataclasses import dataclass

from neaptide.plans import Plan
from neaptide.runtime.steps.planned_graph import PlannedVariant


@dataclass(frozen=True)
class StepPlan:
    """A plan as data and ready to run."""

    plan: Plan
    variant: PlannedVariant
