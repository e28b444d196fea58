"""Puts a saved plan beside a capture: does it fit, is it right, which schedules follow, and what differs otherwise."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from neaptide.ask import BITWISE, RUNS, Ask, LeaveOut
from neaptide.budget import Budget
from neaptide.errors import PlanError, PlanMismatch, RewriteError
from neaptide.frontends.programs.captured import CapturedProgram, CapturedStep
from neaptide.ir.registry import OpRegistry
from neaptide.ir.serial import fingerprint
from neaptide.ops import registry
from neaptide.outcome import Limits
from neaptide.planner.judge_plan import judge_budgets, judge_program, problem_of
from neaptide.planner.own_schedule import as_written
from neaptide.planner.rewritten_plan import replayed
from neaptide.planner.variants.on_operands import IN_PLACE
from neaptide.plans import STEADY, Plan, PlannedProgram, check_content, wrong_field
from neaptide.policy.plan_facts import described_signature, versions
from neaptide.policy.prepared_step import PreparedStep
from neaptide.runtime.steps.planned_graph import PlannedGraph, PlannedVariant
from neaptide.schedule.problem import StepProblem
from neaptide.transform.rules import described_rewrites

logger = logging.getLogger(__name__)


def fits(plan: Plan, captured: CapturedStep) -> bool:
    """Whether the usual step is one that the plan is for."""
    known = {program.captured_fingerprint for program in plan.programs}
    if plan.all_shapes is not None:
        known.update(program.fingerprint for program in plan.all_shapes.programs)
    return fingerprint(captured.steady.graph) in known


def matched(
    plan: Plan, captured: CapturedStep, time_limit_s: float | None, *, bits_may_vary: bool = False
) -> PlannedVariant:
    """The schedules of a plan for a capture, judged; first steps that the plan lacks are planned for the same bytes.

    Args:
        plan: from this process or from a file, which is believed no more.
        captured: the step.
        time_limit_s: of planning what the plan lacks.
        bits_may_vary: what is recomputed may give other bits than the first time. What the plan says of it is not enough.

    Raises:
        PlanMismatch: the usual step is not the one that the plan was made for; says what differs.
        PlanError: the plan is not legal here, or a number in it is not what the step gives; names the field.
    """
    if not fits(plan, captured):
        raise mismatch(plan, captured)
    check_content(plan)
    known = {program.captured_fingerprint: program for program in plan.programs}
    entries = [known.get(fingerprint(program.graph)) for program in captured.programs]
    graphs = _judged(plan, captured.programs, entries, bits_may_vary=bits_may_vary)
    if None in entries:
        options = same_budget(plan, time_limit_s)
        found = PreparedStep(captured, bits_may_vary=bits_may_vary).plan(options).variant
        graphs = [found.graphs[index] if made is None else made for index, made in enumerate(graphs)]
    variant = PlannedVariant(captured, tuple(made for made in graphs if made is not None), plan)
    if rewrites := variant.graphs[0].rewrites:
        logger.info("the step runs as a rewritten graph: %s", "; ".join(described_rewrites(rewrites)))
    return variant


def warn_of_left_out(rule: str, why: str) -> None:
    """Log that calls run without a rewrite of their plan."""
    logger.warning("these calls run without %s, which their plan has: %s", rule, why)


def same_budget(plan: Plan, time_limit_s: float | None, leave_out: LeaveOut | None = None) -> Ask:
    """Search options for what a plan does not cover: within the same bytes, by the same rules, rewritten alike.

    A budget that was a size is what it was; one that was above the baseline leaves room for a larger batch. The lowest
    peak stays the lowest peak. Rewrites of the usual step are done again where they are legal, or searched for again where
    the plan was (`numerics="close"`), and then each rule that keeps the bits wherever it finds something. Where results
    are on top of operands in the plan, that is done behind each search again.

    Args:
        plan: of other calls of the step.
        time_limit_s: of the search.
        leave_out: told the rule and the reason where a rewrite is not legal any more; by default a warning is logged.
    """
    asked = plan.budget
    between = asked.state_between_steps
    budget = Budget(
        asked.peak, outside_bytes=asked.outside_bytes, host=asked.host, state_between_steps=between
    )
    if budget.peak is None or budget.is_share:
        planned = plan.programs if plan.all_shapes is None else plan.all_shapes.programs
        budget = Budget(planned[0].budget_bytes, host=asked.host, state_between_steps=between)
    made = [rewrite for program in plan.programs for rewrite in program.rewrites]
    first = [
        rewrite for program in plan.programs[:1] for rewrite in program.rewrites if rewrite.rule != IN_PLACE
    ]
    return Ask(
        budget,
        limits=Limits(time_s=time_limit_s, seed=plan.seed, runs=RUNS),
        atomic=plan.atomic,
        numerics=plan.numerics,
        in_place=any(one.rule == IN_PLACE for one in made),
        rewrites=(
            # Where sums may be taken in another order, it is searched again which regions run in parts.
            *(first if plan.numerics == BITWISE else ()),
            *dict.fromkeys(one.rule for one in made if one.keeps_bits and one.rule != IN_PLACE),
        ),
        leave_out=leave_out or warn_of_left_out,
        explains=False,
    )


def _judged(
    plan: Plan,
    programs: Sequence[CapturedProgram],
    entries: Sequence[PlannedProgram | None],
    *,
    bits_may_vary: bool,
) -> list[PlannedGraph | None]:
    """What runs for each of the programs, judged beside its graph; None for one that the plan lacks."""
    graphs: list[PlannedGraph | None] = []
    judged: list[PlannedProgram] = []
    peaks: list[int] = []
    known = registry().with_bits(may_vary=plan.allow_nondeterministic)
    for index, (program, entry) in enumerate(zip(programs, entries, strict=True)):
        if entry is None:
            graphs.append(None)
            continue
        if (entry.role == STEADY) != (index == 0):
            raise wrong_field("programs.role", f"is {entry.role!r} for a program that is another step here")
        planned = _replayed(program, entry)
        step = problem_of(entry, planned.graph, known)
        peaks.append(_written_peak(program, entry, step, known))
        here = step.device.partition(":")[0]
        if index == 0 and plan.captured_on not in ("", here):
            raise wrong_field("captured_on", f"is {plan.captured_on!r}, and the step is on {here!r}")
        try:
            schedule = judge_program(
                entry,
                planned.graph,
                step,
                known.with_bits(may_vary=bits_may_vary and plan.allow_nondeterministic),
                captured=None if entry.captured is None else program.graph,
                atomic=plan.atomic,
            )
        except PlanError as error:
            if plan.allow_nondeterministic and not bits_may_vary:
                raise PlanError(
                    error.what,
                    why="the plan may recompute operations whose bits differ from run to run",
                    next_step="where that is meant, say allow_nondeterministic=True here as well",
                ) from error
            raise
        host_bytes = entry.predictions.host_bytes
        graphs.append(replace(planned, schedule=schedule, saved=entry.saved, host_bytes=host_bytes))
        judged.append(entry)
    judge_budgets(plan.budget, judged, peaks)
    return graphs


def _replayed(program: CapturedProgram, entry: PlannedProgram) -> PlannedGraph:
    """The graph that an entry of a plan is for, in program order."""
    edited = replayed(entry, program.graph, registry())
    try:
        return PlannedGraph.captured(program).rewritten(edited, entry.rewrites)
    except RewriteError as error:
        raise wrong_field(f"{entry.role}.captured.rewrites", f"are not legal: {error.what}") from error


def _written_peak(
    program: CapturedProgram, entry: PlannedProgram, step: StepProblem, registry: OpRegistry
) -> int:
    """Bytes, with workspace, of a program as the user wrote it; `step` is what is planned of it."""
    if entry.captured is not None:
        step = problem_of(entry, program.graph, registry, captured=entry.captured)
    written = as_written(program.graph, step, registry, program.checkpoints)
    return written.peak_with_workspace_bytes


def mismatch(plan: Plan, captured: CapturedStep) -> PlanMismatch:
    """The refusal of a plan for another step: what differs, in words."""
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
