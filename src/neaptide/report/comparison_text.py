"""A comparison as one table: programs side by side, predicted above measured; or a row for each program at each shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from neaptide.report.cells import (
    NOTHING,
    bounds_line,
    bullets,
    byte_cell,
    count_cell,
    difference_cell,
    no_lower,
    origin,
    percent,
    ratio_cell,
    seconds_cell,
    size_argument,
    yes_no_cell,
)
from neaptide.report.document import Document, Table, document
from neaptide.report.model import ComparedShape, Comparison, ComparisonRow, ShapesComparison
from neaptide.units import format_bytes

_Cell: TypeAlias = Callable[[ComparisonRow], str]

REFERENCE: Final = "eager"
BASELINE: Final = "baseline"
ARENA: Final = "arena"
_NOT_PLANNED: Final = frozenset({REFERENCE, BASELINE, ARENA})
# Asked for in every comparison; the other groups are shown where a program has them.
_DIFFERENCES: Final = {
    "loss": "loss difference",
    "gradients": "largest gradient difference",
    "parameters": "largest parameter difference",
    "buffers": "largest buffer difference",
    "optimizer_state": "largest optimizer state difference",
}
_ALWAYS_SHOWN: Final = frozenset({"loss", "gradients", "parameters"})

_SHAPES_HEADER: Final = (
    "shape",
    "program",
    "peak, predicted",
    "peak, measured",
    "with workspace, predicted",
    "with workspace, measured",
    "step time, predicted",
    "step time, measured",
    "against the first",
    "bitwise equal to eager",
)


def comparison_document(comparison: Comparison) -> Document:
    """A comparison from top to bottom."""
    return document(
        f"{comparison.name or 'step'} on {comparison.device}"
        + ("" if _was_run(comparison) else ": predicted, nothing was run"),
        _table(comparison),
        _budget_line(comparison),
        f"Not reached: {comparison.budget_missed}." if comparison.budget_missed else None,
        bounds_line(
            comparison.lower_bound_bytes,
            comparison.order_lower_bound_bytes,
            is_rewritten=comparison.bounds_are_of_rewritten,
        ),
        _why_not_lower(comparison),
        bullets("Notes", comparison.notes),
        _how(comparison),
        _next(comparison),
    )


def planned_row(comparison: Comparison) -> ComparisonRow | None:
    """The row of the plan that was asked for; None when nothing was planned."""
    return next((row for row in comparison.rows if row.name not in _NOT_PLANNED), None)


def is_within_budget(comparison: Comparison) -> bool:
    """Whether the plan keeps to the budget; a comparison without a budget does."""
    row = planned_row(comparison)
    if comparison.budget_missed:
        return False
    if comparison.budget_bytes is None or row is None or row.largest_peak_bytes is None:
        return True
    return row.largest_peak_bytes <= comparison.budget_bytes


def _table(comparison: Comparison) -> Table:
    reference_seconds = next(
        (row.step_seconds for row in comparison.rows if row.step_seconds is not None), None
    )
    lines: list[tuple[str, _Cell]] = [
        ("peak, predicted", lambda row: byte_cell(row.predicted_peak_bytes)),
        ("peak, measured", lambda row: byte_cell(row.measured_peak_bytes)),
        ("with workspace, predicted", lambda row: byte_cell(row.predicted_peak_with_workspace_bytes)),
        ("with workspace, measured", lambda row: byte_cell(row.measured_allocator_peak_bytes)),
        ("of it persistent", lambda row: byte_cell(row.persistent_bytes)),
        *_arena_lines(comparison),
        ("step time, predicted", lambda row: seconds_cell(row.predicted_step_seconds)),
        ("step time, measured", lambda row: seconds_cell(row.step_seconds)),
        ("CPU time, measured", lambda row: seconds_cell(row.step_cpu_seconds)),
        (
            f"step time against {_reference_name(comparison)}",
            lambda row: ratio_cell(row.step_seconds, reference_seconds),
        ),
    ]
    lines.append(("loss", lambda row: NOTHING if row.loss is None else f"{row.loss:.6g}"))
    for group, title in _DIFFERENCES.items():
        if group in _ALWAYS_SHOWN or any(group in row.max_abs_diff for row in comparison.rows):
            lines.append((title, _difference_in(group)))
    lines += [
        ("bitwise equal to eager", _bitwise),
        ("recomputed", _of_plans(lambda row: count_cell(row.recomputed, row.recomputed_bytes))),
        ("updates moved", _of_plans(lambda row: count_cell(row.moved_updates))),
        ("planner stopped", _of_plans(lambda row: row.status or NOTHING)),
    ]
    rows = [(title, *(cell(row) for row in comparison.rows)) for title, cell in lines]
    if not _was_run(comparison):
        # Lines about measurements would hold dashes only.
        rows = [row for row in rows if any(cell != NOTHING for cell in row[1:])]
    return Table(("", *(row.name for row in comparison.rows)), tuple(rows))


def _arena_lines(comparison: Comparison) -> list[tuple[str, _Cell]]:
    """What is inside an arena, where a program has one; the block counts as persistent."""
    if all(row.arena is None for row in comparison.rows):
        return []
    return [
        ("of it arena", lambda row: byte_cell(None if row.arena is None else row.arena.arena_bytes)),
        (
            "copied into it",
            lambda row: (
                NOTHING if row.arena is None else count_cell(row.arena.copied, row.arena.copied_bytes)
            ),
        ),
    ]


def _was_run(comparison: Comparison) -> bool:
    return any(row.measured_peak_bytes is not None or row.step_seconds is not None for row in comparison.rows)


def _reference_name(comparison: Comparison) -> str:
    return next((row.name for row in comparison.rows if row.step_seconds is not None), REFERENCE)


def _difference_in(group: str) -> _Cell:
    return lambda row: difference_cell(row.max_abs_diff.get(group))


def _bitwise(row: ComparisonRow) -> str:
    return NOTHING if row.name == REFERENCE else yes_no_cell(row.bitwise_equal)


def _of_plans(cell: _Cell) -> _Cell:
    return lambda row: NOTHING if row.name in _NOT_PLANNED else cell(row)


def _baseline_peak(comparison: Comparison) -> int | None:
    row = next((row for row in comparison.rows if row.name == BASELINE), None)
    return None if row is None else row.predicted_peak_with_workspace_bytes


def _budget_line(comparison: Comparison) -> str:
    if comparison.budget_bytes is None:
        planned = "" if planned_row(comparison) is None else "; plans may use what the baseline uses"
        return f"Budget: none given{planned or ', so nothing was planned'}."
    row = planned_row(comparison)
    baseline = _baseline_peak(comparison)
    text = f"Budget: {format_bytes(comparison.budget_bytes)}"
    if baseline:
        text += f", {percent(comparison.budget_bytes, baseline)} of the baseline's {format_bytes(baseline)}"
    peak = None if row is None else row.largest_peak_bytes
    if row is None or peak is None:
        return text + "; nothing was planned."
    over = peak - comparison.budget_bytes
    if over <= 0:
        return f"{text}; held by {row.name} with {format_bytes(-over)} to spare."
    return f"{text}; NOT held: {row.name} is {format_bytes(over)} above it."


def _why_not_lower(comparison: Comparison) -> str:
    row = planned_row(comparison)
    peak = None if row is None else row.predicted_peak_with_workspace_bytes
    if row is None or peak is None:
        return ""
    bound, budget = comparison.lower_bound_bytes, comparison.budget_bytes
    shown = format_bytes(bound)
    if budget is None:
        return no_lower(peak, bound, f"no budget asks for it; no plan goes below {shown}.")
    if comparison.is_for_bytes:
        told = f"nothing lower was found within the time; no plan goes below {shown}."
        return no_lower(peak, bound, told)
    is_within = is_within_budget(comparison)
    if peak <= budget and not is_within:
        told = f"it was predicted at {format_bytes(peak)}; no plan holds what was measured beyond that."
        return no_lower(peak, bound, told)
    told = (
        f"this is the smallest peak that was found (the planner stopped: {row.status or 'unknown'}); "
        f"between it and {shown} nothing is proved."
    )
    return no_lower(peak, bound, told, budget_bytes=budget, is_within=is_within)


def _how(comparison: Comparison) -> str:
    repeats = max((row.repeats for row in comparison.rows), default=0)
    parts = [
        f"Captured in {seconds_cell(comparison.capture_seconds)}, planned in {seconds_cell(comparison.plan_seconds)}"
    ]
    if repeats:
        parts.append(f"times are medians of {repeats} steps taken in turns")
    if comparison.high_water_mark_bytes is not None:
        parts.append(f"the largest process reached {format_bytes(comparison.high_water_mark_bytes)}")
    return "; ".join(parts) + ". " + origin(comparison.versions, comparison.seed)


def _next(comparison: Comparison) -> str:
    target = comparison.name or "TARGET"
    device = "" if _was_run(comparison) else f" --device {comparison.device}"
    if comparison.budget_bytes is None:
        return f"Next: neaptide compare {target} --peak 60%{device}"
    if is_within_budget(comparison):
        return f"Next: neaptide plan {target} --peak {size_argument(comparison.budget_bytes, at_least=True)}{device} -o plan.json"
    row = planned_row(comparison)
    smallest = row.predicted_peak_with_workspace_bytes if row is not None else None
    if smallest is None:
        return ""
    return f"Next: neaptide compare {target} --peak {size_argument(smallest, at_least=True)}{device}, or a smaller batch"


def shapes_comparison_document(found: ShapesComparison) -> Document:
    """A comparison at some shapes from top to bottom."""
    rows = [_cells_at(shape, row) for shape in found.shapes for row in shape.rows]
    return document(
        f"{found.name or 'step'} on {found.device}, for all shapes: {', '.join(found.dims)}",
        Table(_SHAPES_HEADER, tuple(rows), left=frozenset({0, 1})),
        f"Budget: {format_bytes(found.limit_bytes)} at every shape.",
        "`plan` is one plan for all shapes, and its predicted times are by formula. `padded` is a plan for the largest shape "
        "alone, under the same budget, which every batch is padded to.",
        bullets("Notes", found.notes),
        f"Captured in {seconds_cell(found.capture_seconds)}, planned in {seconds_cell(found.plan_seconds)}; times are "
        f"medians of {found.repeats} steps taken in turns. " + origin(found.versions, found.seed),
    )


def _cells_at(shape: ComparedShape, row: ComparisonRow) -> tuple[str, ...]:
    return (
        ", ".join(f"{dim} = {size}" for dim, size in shape.sizes.items()),
        row.name,
        byte_cell(row.predicted_peak_bytes),
        byte_cell(row.measured_peak_bytes),
        byte_cell(row.predicted_peak_with_workspace_bytes),
        byte_cell(row.measured_allocator_peak_bytes),
        seconds_cell(row.predicted_step_seconds),
        seconds_cell(row.step_seconds),
        ratio_cell(row.step_seconds, shape.rows[0].step_seconds),
        NOTHING if row.bitwise_equal is None else yes_no_cell(row.bitwise_equal),
    )
