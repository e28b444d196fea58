"""A plan for all shapes beside eager and padding: one table, the programs of each shape below each other."""

from __future__ import annotations

from neaptide.report.cells import NOTHING, bullets, byte_cell, origin, ratio_cell, seconds_cell, yes_no_cell
from neaptide.report.document import Document, Table, document
from neaptide.report.model import ComparedShape, ComparisonRow, ShapesComparison
from neaptide.units import format_bytes

_HEADER = (
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


def shapes_comparison_document(found: ShapesComparison) -> Document:
    """A comparison at some shapes from top to bottom."""
    rows = [_cells(shape, row) for shape in found.shapes for row in shape.rows]
    return document(
        f"{found.name or 'step'} on {found.device}, for all shapes: {', '.join(found.dims)}",
        Table(_HEADER, tuple(rows), left=frozenset({0, 1})),
        f"Budget: {format_bytes(found.limit_bytes)} at every shape.",
        "`plan` is one plan for all shapes, and its predicted times are by formula. `padded` is a plan for the largest shape "
        "alone, under the same budget, which every batch is padded to.",
        bullets("Notes", found.notes),
        f"Captured in {seconds_cell(found.capture_seconds)}, planned in {seconds_cell(found.plan_seconds)}; times are "
        f"medians of {found.repeats} steps taken in turns. " + origin(found.versions, found.seed),
    )


def _cells(shape: ComparedShape, row: ComparisonRow) -> tuple[str, ...]:
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
