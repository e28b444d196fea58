"""A plan explained: what it changes, what that saves and costs, and why it goes no lower."""

from __future__ import annotations

from typing import Final

from neaptide.budget import Budget
from neaptide.plans import BudgetRecord, MovesSummary, PartsRecord, Plan, PlannedProgram, described_role
from neaptide.report.cells import (
    bounds_line,
    bullets,
    byte_cell,
    counted,
    origin,
    percent,
    ratio_cell,
    seconds_cell,
)
from neaptide.report.device_notes import predicted_only
from neaptide.report.document import Document, Table, document
from neaptide.report.shapes_text import next_line, shapes_document
from neaptide.report.streams import streams_lines
from neaptide.report.trials_text import trials_lines
from neaptide.transform.rules import described_rewrites
from neaptide.units import format_bytes, format_seconds

_STEADY: Final = "steady"
_MOST_ROWS: Final = 10
_MOST_NAMES: Final = 6


def plan_text(plan: Plan, *, path: str | None = None) -> str:
    """What a plan changes, saves and costs, and why it goes no lower; `path` is that of its file, if it has one."""
    return plan_document(plan, path=path).plain()


def plan_document(plan: Plan, *, path: str | None = None) -> Document:
    """A plan from top to bottom.

    Args:
        plan: with at least one program.
        path: of its file, for the next command; None when it was not saved.
    """
    if plan.all_shapes is not None:
        return shapes_document(plan, plan.all_shapes, path=path)
    if not plan.programs:
        return document(f"plan for {plan.name or 'step'}", "It has no programs.")
    main = steady_program(plan)
    return document(
        f"plan for {plan.name or 'step'} on {plan.device or 'this machine'}: {_what_is_shown(main)}",
        predicted_only(plan.device, plan.captured_on),
        _numbers(main),
        _rewritten(main),
        _budget_line(plan.budget, main),
        _latency_line(plan.budget, main),
        _bounds_line(main),
        _why_not_lower(plan.budget, main),
        _time_bound_line(main),
        _arena_line(main),
        _updates(main.moves),
        _reordered(main.moves),
        _recomputed(main),
        _recomputations(main.moves),
        _bodies(main),
        _on_host(main),
        *streams_lines(main),
        _atomic(plan, main),
        bullets("Axes", plan.axes),
        *_parts(main),
        *trials_lines(main.trials),
        _other_programs(plan, main),
        _search(main, plan),
        next_line(plan, path),
    )


def _what_is_shown(main: PlannedProgram) -> str:
    return "predicted, nothing was run" if main.trials is None else "predicted, and chosen by running it"


def steady_program(plan: Plan) -> PlannedProgram:
    """The program of every step but the first ones."""
    return next((program for program in plan.programs if program.role == _STEADY), plan.programs[-1])


def _numbers(program: PlannedProgram) -> Table:
    made = program.predictions
    captured = program.node_count if program.captured is None else program.captured.node_count
    rows = [
        (
            "peak",
            byte_cell(made.baseline_peak_bytes),
            byte_cell(made.peak_bytes),
            ratio_cell(made.peak_bytes, made.baseline_peak_bytes),
        ),
        (
            "with workspace",
            byte_cell(made.baseline_peak_with_workspace_bytes),
            byte_cell(made.peak_with_workspace_bytes),
            ratio_cell(made.peak_with_workspace_bytes, made.baseline_peak_with_workspace_bytes),
        ),
        ("of it resident", byte_cell(made.resident_bytes), byte_cell(made.resident_bytes), ""),
        (
            "step time",
            seconds_cell(made.baseline_seconds),
            seconds_cell(made.seconds),
            ratio_cell(made.seconds, made.baseline_seconds),
        ),
        ("operations run", str(captured), str(len(program.sequence)), ""),
    ]
    return Table(("", "baseline", "plan", "ratio"), tuple(rows))


def _rewritten(program: PlannedProgram) -> str:
    if not program.rewrites:
        return ""
    return "\n".join(f"Rewritten: {line}." for line in described_rewrites(program.rewrites))


def _budget_line(budget: BudgetRecord, program: PlannedProgram) -> str:
    if budget.peak is None and budget.latency is None:
        if program.moves.recomputations or program.saved:
            return "Budget: none given; no higher than the baseline."
        return "Budget: none given, so nothing is recomputed; the lowest peak found by order alone, at no extra time."
    if Budget(budget.peak).is_min:
        within = "" if budget.latency is None else f" within the latency {budget.latency}"
        return f"Budget: the lowest peak found{within}, {format_bytes(program.budget_bytes)}."
    asked = [f"peak {budget.peak}" if budget.peak is not None else ""]
    asked.append(f"latency {budget.latency}" if budget.latency is not None else "")
    words = ", ".join(part for part in asked if part)
    text = f"Budget: {format_bytes(program.budget_bytes)}" + (f" (asked for: {words})" if words else "")
    over = program.predictions.peak_with_workspace_bytes - program.budget_bytes
    if over <= 0:
        return f"{text}; held with {format_bytes(-over)} to spare."
    return f"{text}; NOT held: {format_bytes(over)} above it."


def _latency_line(budget: BudgetRecord, program: PlannedProgram) -> str:
    made = program.predictions
    seconds = made.seconds * budget.pace
    limit_s = Budget(None, latency=budget.latency).resolve_latency(made.baseline_seconds * budget.pace)
    if limit_s is None:
        return ""
    if program.trials is not None:
        return (
            f"Latency: limit {budget.latency}, held against what was measured: see the plans that were run."
        )
    verdict = "held" if seconds <= limit_s else "NOT held"
    text = f"Latency: limit {format_seconds(limit_s)}, predicted {format_seconds(seconds)}"
    if budget.pace != 1:
        text += f" at the pace of the processor then, {budget.pace:.2f} times those of this report"
    return f"{text}; {verdict}."


def _bounds_line(program: PlannedProgram) -> str:
    made = program.predictions
    return bounds_line(
        made.lower_bound_bytes, made.order_lower_bound_bytes, is_rewritten=bool(program.rewrites)
    )


def _arena_line(program: PlannedProgram) -> str:
    made = program.predictions
    if not made.arena_bytes:
        return ""
    text = f"Arena: {format_bytes(made.arena_bytes)} hold all that the plan makes and does not hand back"
    if made.arena_bytes == made.arena_lower_bound_bytes:
        return f"{text}; no layout of this order is smaller."
    return f"{text}, {percent(made.arena_bytes, made.arena_lower_bound_bytes)} of the least possible for this order."


def _time_bound_line(program: PlannedProgram) -> str:
    """How far the time is from the least possible, for a plan that recomputes within its budget."""
    made, ended = program.predictions, program.termination
    is_timed = made.peak_with_workspace_bytes <= program.budget_bytes and program.moves.recomputations
    if not is_timed or ended.bound is None or ended.best != made.seconds:
        return ""
    least = (
        "Least time: no plan within the budget with this order of first executions runs shorter than "
        f"{format_seconds(ended.bound)}"
    )
    above = (made.seconds - ended.bound) / made.baseline_seconds
    return f"{least}; this one is at most {100 * above:.2f} % of the baseline's time above it."


def _why_not_lower(budget: BudgetRecord, program: PlannedProgram) -> str:
    made = program.predictions
    peak = made.peak_with_workspace_bytes
    bound = format_bytes(made.lower_bound_bytes)
    if peak <= made.lower_bound_bytes:
        return "Why not lower: the lower bound is reached."
    if budget.peak is None:
        end = (
            "no budget asks for it"
            if budget.latency is None
            else "nothing lower was found within the latency"
        )
        return f"Why not lower: {end}; no plan goes below {bound}."
    if Budget(budget.peak).is_min:
        return (
            f"Why not lower: nothing lower was found; no plan goes below {bound}, "
            f"{percent(made.lower_bound_bytes, peak)} of this one's peak."
        )
    if peak <= program.budget_bytes:
        return (
            "Why not lower: the budget is met, and the search was for time from there on; "
            f"no plan goes below {bound}, {percent(made.lower_bound_bytes, peak)} of this one's peak."
        )
    if made.lower_bound_bytes > program.budget_bytes:
        return f"Why not lower: proved, no plan of these moves goes below {bound}, which is above the budget."
    return (
        "Why not lower: this is the smallest peak that was found; "
        f"between it and {bound} nothing is proved, and a longer search may find more."
    )


def _updates(moves: MovesSummary) -> str:
    if not moves.updates_moved_earlier:
        return ""
    names = ", ".join(moves.moved[:_MOST_NAMES])
    rest = len(moves.moved) - _MOST_NAMES
    return (
        f"Updates moved: {moves.updates_moved_earlier} run as soon as their gradient exists"
        + (f" ({names}{f' and {rest} more' if rest > 0 else ''})" if names else "")
        + "."
    )


def _reordered(moves: MovesSummary) -> str:
    if moves.updates_moved_earlier or not moves.operations_moved:
        return ""
    return f"Order: {counted(moves.operations_moved, 'operation')} run elsewhere than in the program."


def _recomputed(program: PlannedProgram) -> str:
    moves, kept = program.moves, program.predictions.random_state_bytes
    if not moves.recomputations:
        return "Recomputed: nothing."
    nbytes = sum(again.nbytes for again in moves.recomputations)
    seconds = sum(again.seconds for again in moves.recomputations)
    states = f" States of random generators kept for it on the host: up to {format_bytes(kept)}."
    return (
        f"Recomputed: {counted(len(moves.recomputations), 'storage')}, {format_bytes(nbytes)} not held meanwhile, "
        f"for {format_seconds(seconds)} of computing again." + (states if kept else "")
    )


def _recomputations(moves: MovesSummary) -> Table | None:
    if not moves.recomputations:
        return None
    largest_first = sorted(moves.recomputations, key=lambda again: (-again.nbytes, again.storage))
    rows = [
        (again.name, byte_cell(again.nbytes), seconds_cell(again.seconds), str(len(again.nodes)))
        for again in largest_first[:_MOST_ROWS]
    ]
    others = largest_first[_MOST_ROWS:]
    if others:
        rows.append(
            (
                f"{len(others)} more",
                byte_cell(sum(again.nbytes for again in others)),
                seconds_cell(sum(again.seconds for again in others)),
                str(sum(len(again.nodes) for again in others)),
            )
        )
    return Table(("recomputed", "bytes", "time", "operations"), tuple(rows))


def _bodies(program: PlannedProgram) -> str:
    lines = []
    for order in program.bodies:
        again = len(order.sequence) - len(set(order.sequence))
        where = " in the body of node ".join(map(str, reversed(order.loops)))
        run = counted(len(order.sequence), "operation")
        stored = len({(stay.storage, stay.occurrence) for stay in order.stays})
        on_host = f", {counted(stored, 'storage')} on the host meanwhile" if stored else ""
        lines.append(f"Loop of node {where}: {run} in each trip, {again} of them run again{on_host}.")
    return "\n".join(lines)


def _parts(program: PlannedProgram) -> tuple[str | Table, ...]:
    found = program.parts
    if found is None:
        return ()
    if not found.regions:
        return ("No region was found that may run in parts.", _refused(found))
    baseline = program.predictions.baseline_peak_with_workspace_bytes
    rows = tuple(
        (tried.label, byte_cell(tried.peak_bytes), seconds_cell(tried.seconds)) for tried in found.tried
    )
    left_out = found.regions_left_out
    more = (
        f"Not looked at: {counted(left_out, 'more region')} with fewer bytes made in parts."
        if left_out
        else ""
    )
    regions = bullets("Regions that may run in parts", found.regions)
    variants = Table(("variant that was planned", "peak with workspace", "time"), rows)
    return (regions, more, _refused(found), _parts_bounds(found, baseline), variants)


def _parts_bounds(found: PartsRecord, baseline: int) -> str:
    def told(nbytes: int) -> str:
        return f"{format_bytes(nbytes)}, {percent(nbytes, baseline)} of the baseline"

    text = f"No plan with parts along their axes goes below {told(found.lower_bound_bytes)}."
    if not found.most_parts_lower_bound_bytes:
        return text
    at_most = f"{text} With at most {found.most_parts} parts along each, as here,"
    if found.most_parts_lower_bound_bytes == found.lower_bound_bytes:
        return f"{at_most} that is the same."
    return f"{at_most} none goes below {told(found.most_parts_lower_bound_bytes)}."


def _refused(parts: PartsRecord) -> str:
    rest = len(parts.refused) - _MOST_NAMES
    more = (f"{rest} more",) if rest > 0 else ()
    return bullets("Looked at and left out", (*parts.refused[:_MOST_NAMES], *more))


def _on_host(program: PlannedProgram) -> str:
    if not program.stays:
        return ""
    made = program.predictions
    stored = len({(stay.storage, stay.occurrence) for stay in program.stays})
    return (
        f"On the host meanwhile: {counted(stored, 'storage')}, up to {format_bytes(made.host_bytes)} at once; "
        f"operations wait {format_seconds(made.exposed_seconds)} for copies."
    )


def _atomic(plan: Plan, program: PlannedProgram) -> str:
    if not plan.atomic:
        return ""
    made = program.predictions
    return (
        "Atomic: updates wait for everything that can fail; "
        f"{counted(len(program.saved), 'storage')} written earlier ({format_bytes(made.saved_bytes)}) "
        f"are copied first. Costs {format_bytes(made.atomic_extra_bytes)} over program order before recomputation."
    )


def _other_programs(plan: Plan, main: PlannedProgram) -> Table | None:
    rows = tuple(
        (
            described_role(program.role),
            byte_cell(program.predictions.baseline_peak_with_workspace_bytes),
            byte_cell(program.predictions.peak_with_workspace_bytes),
            str(len(program.moves.recomputations)),
        )
        for program in plan.programs
        if program is not main
    )
    return Table(("other programs of this step", "baseline", "plan", "recomputed"), rows) if rows else None


def _search(program: PlannedProgram, plan: Plan) -> str:
    ended = program.termination
    limit = f" at the {ended.limit} limit" if ended.limit else ""
    detail = f": {ended.detail.rstrip('.')}" if ended.detail else ""
    reason = ended.reason.replace("_", " ")
    return f"Found by {program.strategy}; the search ended {reason}{limit}{detail}. " + origin(
        plan.versions, plan.seed
    )
