"""A plan explained: what it changes, what that saves and costs, and why it goes no lower."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from neaptide.budget import Budget
from neaptide.plans import (
    BudgetRecord,
    MovesSummary,
    PartsRecord,
    Plan,
    PlannedProgram,
    TrialsRecord,
    described_role,
)
from neaptide.report.cells import (
    bounds_line,
    bullets,
    byte_cell,
    counted,
    no_lower,
    origin,
    percent,
    predicted_only,
    ratio_cell,
    seconds_cell,
)
from neaptide.report.charts.streams import streams_lines
from neaptide.report.document import Block, Document, Table, document
from neaptide.report.shapes_text import other_programs_of_shapes, shapes_blocks
from neaptide.transform.rules import described_rewrites
from neaptide.units import format_bytes, format_seconds

_MOST_ROWS: Final = 10
_MOST_NAMES: Final = 6
_CLOCKS: Final = {"processor": "time of the processor", "wall": "elapsed time"}


def plan_text(plan: Plan, *, path: str | None = None) -> str:
    """What a plan changes, saves and costs, and why it goes no lower; `path` is that of its file, if it has one."""
    return plan_document(plan, path=path).plain()


def plan_document(plan: Plan, *, path: str | None = None) -> Document:
    """A plan from top to bottom, for one shape or for all of them; `path` is for the next command."""
    if not plan.entries:
        return document(f"plan for {plan.name or 'step'}", "It has no programs.")
    main = plan.main
    title = f"plan for {plan.name or 'step'} on {plan.device or 'this machine'}"
    if isinstance(main, PlannedProgram):
        shown = "predicted, nothing was run" if main.trials is None else "predicted, and chosen by running it"
        title, told = f"{title}: {shown}", (*_blocks(plan, main), _other_programs(plan), _search(main, plan))
    else:
        title = f"{title}, for all shapes: predicted, nothing was run"
        told = (*shapes_blocks(plan, main), other_programs_of_shapes(plan, main), _origin(plan))
    next_line = (
        "Next: save the plan, with -o plan.json or plan.save(...), and run it with neaptide run."
        if path is None
        else f"Next: neaptide run {plan.name or 'TARGET'} --plan {path} --verify"
    )
    return document(title, predicted_only(plan.device, plan.captured_on), *told, next_line)


def _origin(plan: Plan) -> str:
    return origin(plan.versions, plan.seed)


def _blocks(plan: Plan, main: PlannedProgram) -> Iterator[Block | None]:
    """Of a plan for one shape."""
    made, moves = main.predictions, main.moves
    yield _numbers(main)
    yield "\n".join(f"Rewritten: {line}." for line in described_rewrites(main.rewrites))
    yield _budget_line(plan.budget, main)
    yield _latency_line(plan.budget, main)
    yield bounds_line(made.lower_bound_bytes, made.order_lower_bound_bytes, is_rewritten=bool(main.rewrites))
    yield _why_not_lower(plan.budget, main)
    yield _time_bound_line(main)
    yield _arena_line(main)
    yield _moved(moves)
    yield _recomputed(main)
    yield _recomputations(moves)
    yield _bodies(main)
    if main.offloads:
        stored = len({(offload.storage, offload.occurrence) for offload in main.offloads})
        yield (
            f"On the host meanwhile: {counted(stored, 'storage')}, up to {format_bytes(made.host_bytes)} at once; "
            f"operations wait {format_seconds(made.exposed_seconds)} for copies."
        )
    yield from streams_lines(main)
    if plan.atomic:
        yield (
            "Atomic: updates wait for everything that can fail; "
            f"{counted(len(main.saved), 'storage')} written earlier ({format_bytes(made.saved_bytes)}) "
            f"are copied first. Costs {format_bytes(made.atomic_extra_bytes)} over program order before recomputation."
        )
    yield bullets("Axes", plan.axes)
    if main.parts is not None:
        yield from _parts(main.parts, made.baseline_peak_with_workspace_bytes)
    if main.trials is not None:
        yield from _trials(main.trials)


def _numbers(program: PlannedProgram) -> Table:
    made = program.predictions
    captured = program.node_count if program.captured is None else program.captured.node_count

    def row(title: str, before: int, after: int) -> tuple[str, ...]:
        return title, byte_cell(before), byte_cell(after), ratio_cell(after, before)

    persistent = byte_cell(made.persistent_bytes)
    workspace = made.baseline_peak_with_workspace_bytes, made.peak_with_workspace_bytes
    time = seconds_cell(made.baseline_seconds), seconds_cell(made.seconds)
    rows = (
        row("peak", made.baseline_peak_bytes, made.peak_bytes),
        row("with workspace", *workspace),
        ("of it persistent", persistent, persistent, ""),
        ("step time", *time, ratio_cell(made.seconds, made.baseline_seconds)),
        ("operations run", str(captured), str(len(program.sequence)), ""),
    )
    return Table(("", "baseline", "plan", "ratio"), rows)


def _budget_line(budget: BudgetRecord, program: PlannedProgram) -> str:
    if budget.peak is None and budget.latency is None:
        if program.moves.recomputations or program.saved:
            return "Budget: none given; no higher than the baseline."
        return "Budget: none given, so nothing is recomputed; the lowest peak found by order alone, at no extra time."
    allowed = format_bytes(program.budget_bytes)
    if Budget(budget.peak).is_min:
        within = "" if budget.latency is None else f" within the latency {budget.latency}"
        return f"Budget: the lowest peak found{within}, {allowed}."
    asked = [
        f"{name} {limit}"
        for name, limit in (("peak", budget.peak), ("latency", budget.latency))
        if limit is not None
    ]
    text = f"Budget: {allowed} (asked for: {', '.join(asked)})"
    over = program.predictions.peak_with_workspace_bytes - program.budget_bytes
    if over <= 0:
        return f"{text}; held with {format_bytes(-over)} to spare."
    return f"{text}; NOT held: {format_bytes(over)} above it."


def _latency_line(budget: BudgetRecord, program: PlannedProgram) -> str:
    made = program.predictions
    seconds = made.seconds * budget.clock_factor
    limit_s = Budget(None, latency=budget.latency).resolve_latency(
        made.baseline_seconds * budget.clock_factor
    )
    if limit_s is None:
        return ""
    if program.trials is not None:
        return (
            f"Latency: limit {budget.latency}, held against what was measured: see the plans that were run."
        )
    text = f"Latency: limit {format_seconds(limit_s)}, predicted {format_seconds(seconds)}"
    if budget.clock_factor != 1:
        text += f" at the speed of the processor then, {budget.clock_factor:.2f} times those of this report"
    return f"{text}; {'held' if seconds <= limit_s else 'NOT held'}."


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
    above = (made.seconds - ended.bound) / made.baseline_seconds
    return (
        "Least time: no plan within the budget with this order of first executions runs shorter than "
        f"{format_seconds(ended.bound)}; this one is at most {100 * above:.2f} % of the baseline's time above it."
    )


def _why_not_lower(budget: BudgetRecord, program: PlannedProgram) -> str:
    made = program.predictions
    peak, bound = made.peak_with_workspace_bytes, made.lower_bound_bytes
    if budget.peak is None:
        asks = (
            "no budget asks for it"
            if budget.latency is None
            else "nothing lower was found within the latency"
        )
        return no_lower(peak, bound, f"{asks}; no plan goes below {format_bytes(bound)}.")
    below = f"no plan goes below {format_bytes(bound)}, {percent(bound, peak)} of this one's peak."
    if Budget(budget.peak).is_min:
        return no_lower(peak, bound, f"nothing lower was found; {below}")
    return no_lower(
        peak,
        bound,
        "this is the smallest peak that was found; "
        f"between it and {format_bytes(bound)} nothing is proved, and a longer search may find more.",
        budget_bytes=program.budget_bytes,
        is_within=peak <= program.budget_bytes,
    )


def _moved(moves: MovesSummary) -> str:
    if not moves.updates_moved_earlier:
        elsewhere = counted(moves.operations_moved, "operation")
        return f"Order: {elsewhere} run elsewhere than in the program." if moves.operations_moved else ""
    rest = len(moves.moved) - _MOST_NAMES
    more = f" and {rest} more" if rest > 0 else ""
    names = f" ({', '.join(moves.moved[:_MOST_NAMES])}{more})" if moves.moved else ""
    return f"Updates moved: {moves.updates_moved_earlier} run as soon as their gradient exists{names}."


def _recomputed(program: PlannedProgram) -> str:
    again, kept = program.moves.recomputations, program.predictions.random_state_bytes
    if not again:
        return "Recomputed: nothing."
    states = f" States of random generators kept for it on the host: up to {format_bytes(kept)}."
    return (
        f"Recomputed: {counted(len(again), 'storage')}, {format_bytes(sum(one.nbytes for one in again))} not held meanwhile, "
        f"for {format_seconds(sum(one.seconds for one in again))} of computing again."
        + (states if kept else "")
    )


def _recomputations(moves: MovesSummary) -> Table | None:
    if not moves.recomputations:
        return None
    largest_first = sorted(moves.recomputations, key=lambda again: (-again.nbytes, again.storage))
    others = largest_first[_MOST_ROWS:]
    told = [(again.name, [again]) for again in largest_first[:_MOST_ROWS]]
    rows = tuple(
        (
            name,
            byte_cell(sum(again.nbytes for again in group)),
            seconds_cell(sum(again.seconds for again in group)),
            str(sum(len(again.nodes) for again in group)),
        )
        for name, group in [*told, *([(f"{len(others)} more", others)] if others else [])]
    )
    return Table(("recomputed", "bytes", "time", "operations"), rows)


def _bodies(program: PlannedProgram) -> str:
    lines = []
    for order in program.bodies:
        again = len(order.sequence) - len(set(order.sequence))
        where = " in the body of node ".join(map(str, reversed(order.loops)))
        run = counted(len(order.sequence), "operation")
        stored = len({(offload.storage, offload.occurrence) for offload in order.offloads})
        on_host = f", {counted(stored, 'storage')} on the host meanwhile" if stored else ""
        lines.append(f"Loop of node {where}: {run} in each trip, {again} of them run again{on_host}.")
    return "\n".join(lines)


def _parts(found: PartsRecord, baseline: int) -> Iterator[Block]:
    """Regions that may run in parts, what was left out, what is proved, and the variants that were planned."""
    rest = len(found.refused) - _MOST_NAMES
    more = (f"{rest} more",) if rest > 0 else ()
    refused = bullets("Looked at and left out", (*found.refused[:_MOST_NAMES], *more))
    if not found.regions:
        yield "No region was found that may run in parts."
        yield refused
        return
    yield bullets("Regions that may run in parts", found.regions)
    if left_out := found.regions_left_out:
        yield f"Not looked at: {counted(left_out, 'more region')} with fewer bytes made in parts."
    yield refused

    bound = found.lower_bound_bytes
    yield (
        f"No plan with parts along their axes goes below {format_bytes(bound)}, {percent(bound, baseline)} of the baseline."
    )
    rows = tuple((one.label, byte_cell(one.peak_bytes), seconds_cell(one.seconds)) for one in found.tried)
    yield Table(("variant that was planned", "peak with workspace", "time"), rows)


def _trials(found: TrialsRecord) -> Iterator[Block]:
    """The plans that were run to choose one of them, and why it was taken."""
    limit = (
        f"{found.longest_ratio:.3f} of that time"
        if found.longest_ratio is not None
        else format_seconds(found.longest_seconds or 0.0)
    )
    why = {
        "least_peak": f"Taken: the least peak of those that measured within {limit}.",
        "none_within": f"None measured within {limit}, so the fastest is taken.",
        "fastest": "Taken: the fastest of those that are predicted to fit.",
    }[found.reason]
    yield (
        f"Tried: {counted(len(found.rows), 'plan')}, {counted(found.rounds, 'step')} each in turns with {found.beside}, "
        f"{_CLOCKS[found.clock]}. {why}"
    )
    rows = tuple(
        (
            f"{row.planned_for}{' (taken)' if index == found.chosen else ''}",
            byte_cell(row.predicted_peak_bytes),
            f"{row.predicted_ratio:.3f}",
            f"{row.measured_ratio:.3f}",
            f"{row.measured_ratio_low:.3f} to {row.measured_ratio_high:.3f}",
            seconds_cell(row.measured_seconds),
        )
        for index, row in enumerate(found.rows)
    )
    header = (
        "planned for",
        "predicted peak",
        "predicted ratio",
        "measured ratio",
        "95 % interval",
        "measured",
    )
    yield Table(header, rows)


def _other_programs(plan: Plan) -> Table | None:
    rows = tuple(
        (
            described_role(program.role),
            byte_cell(program.predictions.baseline_peak_with_workspace_bytes),
            byte_cell(program.predictions.peak_with_workspace_bytes),
            str(len(program.moves.recomputations)),
        )
        for program in plan.programs
        if program is not plan.main
    )
    return Table(("other programs of this step", "baseline", "plan", "recomputed"), rows) if rows else None


def _search(program: PlannedProgram, plan: Plan) -> str:
    ended = program.termination
    limit = f" at the {ended.limit} limit" if ended.limit else ""
    detail = f": {ended.detail.rstrip('.')}" if ended.detail else ""
    reason = ended.reason.replace("_", " ")
    return f"Found by {program.strategy}; the search ended {reason}{limit}{detail}. {_origin(plan)}"
