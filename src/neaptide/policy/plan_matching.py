"""Puts a saved plan beside a capture: does it fit, is it right, and which schedules follow. One matcher for every plan."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from neaptide.ask import BITWISE, RUNS, Ask, LeaveOut
from neaptide.budget import Budget
from neaptide.errors import PlanError
from neaptide.frontends.programs.captured import CapturedProgram, CapturedStep
from neaptide.ir.fingerprint import fingerprint
from neaptide.ir.registry import OpRegistry
from neaptide.ops import registry
from neaptide.outcome import Limits
from neaptide.planner.check_plan import check_budgets, problem_of
from neaptide.planner.graphs.on_operands import IN_PLACE
from neaptide.planner.graphs.own_schedule import as_written
from neaptide.plans import STEADY, Plan, PlannedProgram, ShapesProgram, check_content, wrong_field
from neaptide.policy.plan_facts import checked_graph, mismatch, needs_leave, replayed_graph
from neaptide.policy.points.saved_plan import checked_for_all_shapes
from neaptide.policy.prepared_step import PreparedStep
from neaptide.runtime.steps.planned_graph import PlannedGraph, PlannedVariant
from neaptide.schedule.problem import StepProblem
from neaptide.transform.rules import described_rewrites

logger = logging.getLogger(__name__)


def fits(plan: Plan, captured: CapturedStep) -> bool:
    """Whether the usual step is one that the plan is for."""
    return fingerprint(captured.steady.graph) in {entry.captured_fingerprint for entry in plan.entries}


def matched(plan: Plan, prepared: PreparedStep, time_limit_s: float | None = None) -> PlannedVariant:
    """The schedules of a plan for a step, checked: orders are legal, and bytes those that the step gives.

    A plan from this process is believed no more than one of a file. First steps that a plan for one shape lacks are
    planned for the same bytes, in `time_limit_s`. Of a plan for all shapes nothing is searched for: what may be evicted is
    found again from the order. What a call evicts is decided by the seconds of the device that it runs on, so peaks under
    the limit may be others than those in the plan.
    """
    check_content(plan)
    captured = prepared.captured
    known = {entry.captured_fingerprint: entry for entry in plan.entries}
    entries = [known.get(fingerprint(program.graph)) for program in captured.programs]
    for index, entry in enumerate(entries):
        if entry is None and (index == 0 or plan.all_shapes is not None):
            raise mismatch(plan, captured, index)
        if entry is not None and (entry.role == STEADY) != (index == 0):
            raise wrong_field("programs.role", f"is {entry.role!r} for a program that is another step here")
    pairs = list(zip(captured.programs, entries, strict=True))
    graphs = [
        checked_for_all_shapes(entry, program, prepared)
        for program, entry in pairs
        if isinstance(entry, ShapesProgram)
    ] or _checked(plan, pairs, prepared, time_limit_s)
    if rewrites := graphs[0].rewrites:
        logger.info("the step runs as a rewritten graph: %s", "; ".join(described_rewrites(rewrites)))
    return PlannedVariant(captured, tuple(graphs), plan, prepared.slow)


def warn_of_left_out(rule: str, why: str) -> None:
    """Log that calls run without a rewrite of their plan."""
    logger.warning("these calls run without %s, which their plan has: %s", rule, why)


def same_budget(plan: Plan, time_limit_s: float | None, leave_out: LeaveOut | None = None) -> Ask:
    """What is asked for calls that a plan does not cover: within the same bytes, by the same rules, rewritten alike.

    A budget that was a size is what it was; one that was above the baseline leaves room for a larger batch. The lowest
    peak stays the lowest peak. Rewrites of the usual step are done again where they are legal, or searched for again where
    the plan was (`numerics="close"`), and then each rule that keeps the bits wherever it finds something. Where results
    are on top of operands in the plan, that is done after each search again. `leave_out` is told the rule and the reason
    where a rewrite is not legal any more; by default a warning is logged.
    """
    asked = plan.budget
    between = asked.state_between_steps
    budget = Budget(
        asked.peak, outside_bytes=asked.outside_bytes, host=asked.host, state_between_steps=between
    )
    if budget.peak is None or budget.is_share:
        budget = Budget(plan.entries[0].budget_bytes, host=asked.host, state_between_steps=between)
    made = [rewrite for program in plan.programs for rewrite in program.rewrites]
    first = plan.programs[0].rewrites if plan.programs else ()
    return Ask(
        budget,
        limits=Limits(time_s=time_limit_s, seed=plan.seed, runs=RUNS),
        atomic=plan.atomic,
        numerics=plan.numerics,
        in_place=any(one.rule == IN_PLACE for one in made),
        rewrites=(
            # Where sums may be taken in another order, it is searched again which regions run in parts.
            *(one for one in first if plan.numerics == BITWISE and one.rule != IN_PLACE),
            *dict.fromkeys(one.rule for one in made if one.keeps_bits and one.rule != IN_PLACE),
        ),
        leave_out=leave_out or warn_of_left_out,
        explains=False,
    )


def _checked(
    plan: Plan,
    pairs: Sequence[tuple[CapturedProgram, PlannedProgram | ShapesProgram | None]],
    prepared: PreparedStep,
    time_limit_s: float | None,
) -> list[PlannedGraph]:
    """What runs for each of the programs of a plan for one shape, checked beside its graph, or planned where it lacks one."""
    graphs: dict[int, PlannedGraph] = {}
    checked: list[PlannedProgram] = []
    peaks: list[int] = []
    known = registry().with_bits(may_vary=plan.bits_may_vary)
    allowed = known.with_bits(may_vary=prepared.registry.bits_may_vary and plan.bits_may_vary)
    for index, (program, entry) in enumerate(pairs):
        if not isinstance(entry, PlannedProgram):
            continue
        planned = replayed_graph(entry, program, registry())
        step = problem_of(entry, planned.graph, known)
        peaks.append(_written_peak(program, entry, step, known))
        here = step.device.partition(":")[0]
        if index == 0 and plan.captured_on not in ("", here):
            raise wrong_field("captured_on", f"is {plan.captured_on!r}, and the step is on {here!r}")
        try:
            graphs[index] = checked_graph(entry, planned, step, allowed, atomic=plan.atomic)
        except PlanError as error:
            if plan.bits_may_vary and not prepared.registry.bits_may_vary:
                raise needs_leave(error) from error
            raise
        checked.append(entry)
    check_budgets(plan.budget, checked, peaks)
    if len(graphs) < len(pairs):
        found = prepared.plan(same_budget(plan, time_limit_s)).variant.graphs
        graphs = {**dict(enumerate(found)), **graphs}
    return [graphs[index] for index in range(len(pairs))]


def _written_peak(
    program: CapturedProgram, entry: PlannedProgram, step: StepProblem, registry: OpRegistry
) -> int:
    """Bytes, with workspace, of a program as the user wrote it; `step` is what is planned of it."""
    if entry.captured is not None:
        step = problem_of(entry, program.graph, registry, captured=entry.captured)
    return as_written(program.graph, step, registry, program.checkpoints).peak_with_workspace_bytes
