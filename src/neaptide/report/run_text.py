"""What a run of a plan gave, predicted beside measured."""

from __future__ import annotations

from neaptide.report.arena_text import arena_lines, arena_table
from neaptide.report.cells import bullets, byte_cell, counted, difference_cell, origin, seconds_cell
from neaptide.report.document import Document, Table, document
from neaptide.report.model import RunReport


def run_document(report: RunReport) -> Document:
    """A run from top to bottom."""
    return document(
        f"{report.name or 'step'}: {counted(report.steps, 'step')} of the plan",
        Table(
            ("", "predicted", "measured"),
            (
                ("peak", byte_cell(report.predicted_peak_bytes), byte_cell(report.measured_peak_bytes)),
                (
                    "with workspace",
                    byte_cell(report.predicted_peak_with_workspace_bytes),
                    byte_cell(report.measured_allocator_peak_bytes),
                ),
                ("step time (median)", "-", seconds_cell(report.step_seconds)),
            ),
        ),
        bullets("Arena", () if report.arena is None else arena_lines(report.arena)),
        arena_table(report.arena_on_the_way) if report.arena_on_the_way else None,
        "Losses: " + ", ".join(f"{loss:.6g}" for loss in report.losses) if report.losses else None,
        _verification(report),
        f"Calls: {report.calls}" if report.calls else None,
        origin(report.versions, report.seed),
    )


def _verification(report: RunReport) -> str:
    if report.bitwise_equal is None and not report.max_abs_diff:
        return "Not verified against eager; --verify does it."
    if report.bitwise_equal:
        return "Verified against eager: every tensor has the same bits."
    groups = ", ".join(
        f"{group.replace('_', ' ')} {difference_cell(difference)}"
        for group, difference in report.max_abs_diff.items()
    )
    return f"Verified against eager, largest differences: {groups}."
