"""Plans that searches for several limits of one program met: each counts for all limits."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from neaptide.outcome import TerminationReason
from neaptide.planner.plan_graph import GraphPlan
from neaptide.planner.variants.goal import Goal
from neaptide.planner.variants.variant import Variant
from neaptide.planner.variants.variant_plan import VariantPlan
from neaptide.plans import PlannedProgram, TerminationRecord

_ELSEWHERE: Final = "met in a search for another limit"


class MetPlans:
    """Plans of variants of one program, in the order in which they were met."""

    def __init__(self) -> None:
        self._plans: list[VariantPlan] = []

    def note(self, plan: VariantPlan) -> None:
        """Remember a plan."""
        self._plans.append(plan)

    def best(self, goal: Goal) -> VariantPlan | None:
        """The best for a limit, as the answer to it; None where no plan was met. O(plans)."""
        best = min(self._plans, key=lambda plan: goal.rank_of(plan.found.program), default=None)
        if best is None:
            return None
        return replace(best, found=replace(best.found, program=for_limit(best.found.program, goal)))

    def of(self, variant: Variant) -> tuple[GraphPlan, ...]:
        """Plans of a variant, none both lower and faster than another, the fastest first. O(plans log plans)."""
        found = [plan.found for plan in self._plans if plan.variant.rewrites == variant.rewrites]
        kept: list[GraphPlan] = []
        for plan in sorted(found, key=lambda one: _time_and_peak(one.program)):
            if not kept or _time_and_peak(plan.program)[1] < _time_and_peak(kept[-1].program)[1]:
                kept.append(plan)
        return tuple(kept)

    def variants(self) -> tuple[VariantPlan, ...]:
        """One plan of each variant: the one that was met first."""
        return tuple({plan.variant.rewrites: plan for plan in reversed(self._plans)}.values())[::-1]


def for_limit(program: PlannedProgram, goal: Goal) -> PlannedProgram:
    """A plan that a search for one limit found, as what is known of it for another.

    Bounds of that search hold for its own limit, and are dropped.
    """
    made, ended = program.predictions, program.termination
    beyond, *_ = goal.rank_of(program)
    reason = TerminationReason.NO_SOLUTION_FOUND if beyond else TerminationReason.FEASIBLE
    is_timed = goal.longest is None and not beyond
    best = made.seconds if is_timed else made.peak_with_workspace_bytes
    return replace(program, termination=TerminationRecord(str(reason), ended.limit, _ELSEWHERE, best))


def _time_and_peak(program: PlannedProgram) -> tuple[float, int]:
    return program.predictions.seconds, program.predictions.peak_with_workspace_bytes
