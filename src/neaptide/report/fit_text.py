"""Whether a step fits a card, as people read it."""

from __future__ import annotations

from neaptide.report.cells import NOTHING, bullets, byte_cell, origin, seconds_cell
from neaptide.report.document import Document, Table, document
from neaptide.report.model import FitReport
from neaptide.units import format_bytes


def fit_document(report: FitReport) -> Document:
    """Yes or no, the largest batch, and the changes that make it fit."""
    return document(
        _verdict(report),
        _largest(report),
        _changes(report),
        bullets("Not found", report.notes),
        bullets("Not exact", report.not_exact),
        f"Captured for {report.device} in {seconds_cell(report.capture_seconds)}; nothing was run. "
        + origin(report.versions, report.seed),
    )


def _verdict(report: FitReport) -> str:
    answer = "Yes" if report.fits else "No"
    margin = format_bytes(abs(report.margin_bytes))
    told = f"{margin} to spare" if report.fits else f"{margin} too much"
    return (
        f"{answer}: {report.name or 'the step'} takes {format_bytes(report.predicted_peak_bytes)} of "
        f"{format_bytes(report.capacity_bytes)} on {report.device}, {told} (predicted)."
    )


def _largest(report: FitReport) -> Table | None:
    rows = tuple(
        (
            row.dim,
            NOTHING if row.in_program_order is None else str(row.in_program_order),
        )
        for row in report.largest
    )
    return Table(("largest that fits", "as it is"), rows) if rows else None


def _changes(report: FitReport) -> Table | None:
    rows = tuple(
        (
            change.name,
            byte_cell(change.predicted_peak_bytes),
            NOTHING if change.fits is None else ("yes" if change.fits else "no"),
            NOTHING if change.predicted_time is None else f"{change.predicted_time:.2f}x",
            change.note or change.how,
        )
        for change in report.changes
    )
    header = ("one change", "peak, predicted", "fits", "time, predicted", "how")
    return Table(header, rows, left=frozenset({2, 4})) if rows else None
