"""Puts a saved plan beside a capture: does it fit, is it right, which schedules follow, and what differs otherwise."""

from __future__ import annotations

from collections.abc import Sequence

from neaptide.errors import PlanError, PlanMismatch
from neaptide.frontends.captured import CapturedProgram, CapturedStep
from neaptide.ir.schedule import Schedule
from neaptide.ir.serial import fingerprint
from neaptide.ops import registry
from neaptide.outcome import Limits
from neaptide.planner.budget import Budget
from neaptide.planner.judge_plan import judge_budgets, judge_program, problem_of
from neaptide.planner.own_schedule import as_written
from neaptide.plans import Plan, PlannedProgram
from neaptide.plans.content import STEADY, check_content, wrong_field
from neaptide.runtime.planned_step import PlannedVariant
from neaptide.runtime.prepared_step import PreparedStep, SearchOptions, described_signature, versions


def fits(plan: Plan, captured: CapturedStep) -> bool:
    """Whether the usual step is one that the plan is for."""
    return fingerprint(captured.steady.graph) in {program.fingerprint for program in plan.programs}


def matched(
    plan: Plan, captured: CapturedStep, time_limit_s: float | None, *, allow_nondeterministic: bool = False
) -> PlannedVariant:
    """The schedules of a plan for a capture, judged; first steps that the plan lacks are planned for the same bytes.

    Args:
        plan: from this process or from a file, which is believed no more.
        captured: the step.
        time_limit_s: of planning what the plan lacks.
        allow_nondeterministic: what is recomputed may give other bits than the first time. What the plan says of it is
            not enough.

    Raises:
        PlanMismatch: the usual step is not the one that the plan was made for; says what differs.
        PlanError: the plan is not legal here, or a number in it is not what the step gives; names the field.
    """
    if not fits(plan, captured):
        raise _mismatch(plan, captured)
    check_content(plan)
    known = {program.fingerprint: program for program in plan.programs}
    entries = [known.get(fingerprint(program.graph)) for program in captured.programs]
    schedules = _judged(plan, captured.programs, entries, allow_nondeterministic=allow_nondeterministic)
    saved = [entry.saved if entry is not None else () for entry in entries]
    if None in entries:
        options = same_budget(plan, time_limit_s)
        found = PreparedStep(captured, allow_nondeterministic=allow_nondeterministic).plan(options).variant
        for index, entry in enumerate(entries):
            if entry is None:
                schedules[index], saved[index] = found.schedules[index], found.saved[index]
    return PlannedVariant(
        captured, tuple(schedules[index] for index in range(len(entries))), tuple(saved), plan
    )


def same_budget(plan: Plan, time_limit_s: float | None) -> SearchOptions:
    """Search options for what a plan does not cover: within the same bytes, by the same rules.

    A budget that was a size is what it was; one that was above the baseline leaves room for a larger batch. The lowest
    peak stays the lowest peak.
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


def _judged(
    plan: Plan,
    programs: Sequence[CapturedProgram],
    entries: Sequence[PlannedProgram | None],
    *,
    allow_nondeterministic: bool,
) -> dict[int, Schedule]:
    """By index, the schedules of the programs that a plan has, each judged beside its graph."""
    schedules: dict[int, Schedule] = {}
    judged: list[PlannedProgram] = []
    peaks: list[int] = []
    for index, (program, entry) in enumerate(zip(programs, entries, strict=True)):
        if entry is None:
            continue
        if (entry.role == STEADY) != (index == 0):
            raise wrong_field("programs.role", f"is {entry.role!r} for a program that is another step here")
        step = problem_of(
            entry, program.graph, registry(), allow_nondeterministic=plan.allow_nondeterministic
        )
        here = step.device.partition(":")[0]
        if index == 0 and plan.captured_on not in ("", here):
            raise wrong_field("captured_on", f"is {plan.captured_on!r}, and the step is on {here!r}")
        try:
            schedules[index] = judge_program(
                entry,
                program.graph,
                step,
                registry(),
                atomic=plan.atomic,
                allow_nondeterministic=allow_nondeterministic and plan.allow_nondeterministic,
            )
        except PlanError as error:
            if plan.allow_nondeterministic and not allow_nondeterministic:
                raise PlanError(
                    error.what,
                    why="the plan may recompute operations whose bits differ from run to run",
                    next_step="where that is meant, say allow_nondeterministic=True here as well",
                ) from error
            raise
        written = as_written(
            program.graph,
            step,
            registry(),
            program.checkpoints,
            allow_nondeterministic=plan.allow_nondeterministic,
        )
        judged.append(entry)
        peaks.append(written.peak_with_workspace_bytes)
    judge_budgets(plan.budget, judged, peaks)
    return schedules


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
