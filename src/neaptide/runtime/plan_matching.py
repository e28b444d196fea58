"""Puts a saved plan beside a capture: does it fit, which schedules follow, and what differs where it does not."""

from __future__ import annotations

from neaptide.errors import PlanMismatch
from neaptide.frontends.torch_step import CapturedStep
from neaptide.ir.schedule import Schedule
from neaptide.ir.serial import fingerprint
from neaptide.outcome import Limits
from neaptide.planner.budget import Budget
from neaptide.plans import Plan
from neaptide.runtime.planned_step import PlannedVariant
from neaptide.runtime.prepared_step import PreparedStep, SearchOptions, described_signature, versions


def fits(plan: Plan, captured: CapturedStep) -> bool:
    """Whether the usual step is one that the plan is for."""
    return fingerprint(captured.steady.graph) in {program.fingerprint for program in plan.programs}


def matched(plan: Plan, captured: CapturedStep, time_limit_s: float | None) -> PlannedVariant:
    """The schedules of a plan for a capture; first steps that the plan lacks are planned for the same bytes.

    Raises:
        PlanMismatch: the usual step is not the one that the plan was made for; says what differs.
    """
    if not fits(plan, captured):
        raise _mismatch(plan, captured)
    known = {program.fingerprint: program for program in plan.programs}
    entries = [known.get(fingerprint(program.graph)) for program in captured.programs]
    if None in entries:
        found = PreparedStep(captured, allow_nondeterministic=plan.allow_nondeterministic).plan(
            same_budget(plan, time_limit_s)
        )
        made = found.plan.programs
        entries = [entry or other for entry, other in zip(entries, made, strict=True)]
    chosen = [entry for entry in entries if entry is not None]
    schedules = tuple(
        Schedule.from_nodes(program.graph, entry.sequence)
        for program, entry in zip(captured.programs, chosen, strict=True)
    )
    return PlannedVariant(captured, schedules, tuple(entry.saved for entry in chosen), plan)


def same_budget(plan: Plan, time_limit_s: float | None) -> SearchOptions:
    """Search options for what a plan does not cover: within the same bytes, by the same rules.

    A budget that was a size is what it was; one that was above the baseline leaves room for a larger batch.
    """
    asked = plan.budget
    budget = Budget(asked.peak, outside_bytes=asked.outside_bytes)
    if budget.peak is None or budget.is_share:
        budget = Budget(peak=plan.programs[0].budget_bytes)
    return SearchOptions(
        budget,
        limits=Limits(time_s=time_limit_s, seed=plan.seed),
        atomic=plan.atomic,
    )


def _mismatch(plan: Plan, captured: CapturedStep) -> PlanMismatch:
    then, now = dict(plan.signature), dict(described_signature(captured))
    differing = [
        f"{key} is {now.get(key, 'gone')}, was {then.get(key, 'not there')}"
        for key in {**then, **now}
        if then.get(key) != now.get(key)
    ]
    more = f"; and {len(differing) - 4} more" if len(differing) > 4 else ""
    here, there = versions(), plan.versions
    others = [
        f"{key} {here[key]}, was {there[key]}" for key in here if there.get(key, here[key]) != here[key]
    ]
    why = "; ".join(differing[:4]) + more or "shapes and flags agree but the operations differ"
    return PlanMismatch(
        f"the plan for {plan.name or 'another step'} does not fit this step",
        why=why + (f" (versions: {', '.join(others)})" if others else ""),
        next_step="plan this step, or use the model, batch shape and versions that the plan was made for",
    )
