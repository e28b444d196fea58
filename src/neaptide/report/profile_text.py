"""A profile as people read it: does it fit, what is live at the peak, what is the next command."""

from __future__ import annotations

from typing import Final

from neaptide.report.cells import (
    NOTHING,
    bullets,
    byte_cell,
    counted,
    origin,
    place,
    predicted_only,
    seconds_cell,
    shares,
    size_argument,
)
from neaptide.report.document import Block, Document, Table, document
from neaptide.report.model import FittingShapes, LargestSize, ProfileReport, ShapeRanges
from neaptide.units import format_bytes

# More rows than this do not help to find the cause; `--json` has all of them.
_MOST_LIVE_ROWS: Final = 10
_LONGEST_CODE: Final = 48


def profile_document(report: ProfileReport) -> Document:
    """A profile from top to bottom."""
    return document(
        f"{report.name or 'step'} on {report.device}: predicted, the step was not run",
        _numbers(report),
        _verdict(report),
        predicted_only(report.device, report.captured_on),
        _at_the_peak(report),
        _live(report),
        _why_not_lower(report),
        bullets("Changed by the capture", report.rewrites),
        bullets("Operations without a row in the op table, left alone", report.unknown_ops),
        bullets("Axes", report.axes),
        *ranges_blocks(report.ranges),
        bullets("Not counted", report.not_counted),
        f"Captured {counted(report.operations, 'operation')} in {seconds_cell(report.capture_seconds)}. "
        + origin(report.versions, report.seed),
        _next(report),
    )


def _numbers(report: ProfileReport) -> Table:
    workspace = "audited here" if report.workspace_is_known else "by formula"
    timing = "measured here" if report.seconds_are_measured else "by cost model"
    rows = [
        ("peak, storages", byte_cell(report.predicted_peak_bytes), "predicted"),
        ("peak, with workspace", byte_cell(report.predicted_peak_with_workspace_bytes), workspace),
        ("of it persistent", byte_cell(report.persistent_bytes), "whole step"),
        ("lower bound, order alone", byte_cell(report.order_lower_bound_bytes), "proved"),
        ("lower bound, any plan", byte_cell(report.lower_bound_bytes), "proved"),
        ("step time", seconds_cell(report.predicted_step_seconds), timing),
    ]
    if report.capacity_bytes is not None:
        rows.append(("usable on the device", byte_cell(report.capacity_bytes), report.device))
    return Table(("quantity", "predicted", "how"), tuple(rows), left=frozenset({2}))


def _verdict(report: ProfileReport) -> str:
    if report.fits is None or report.over_bytes is None:
        return ""
    if report.fits:
        return f"Fits {report.device}: {format_bytes(-report.over_bytes)} to spare."
    return f"Does not fit {report.device}: {format_bytes(report.over_bytes)} too much."


def _at_the_peak(report: ProfileReport) -> str:
    where = report.peak_phase
    if report.peak_module:
        where = f"{where} of {report.peak_module}" if where else report.peak_module
    parts = ", ".join(part for part in (where, place(report.peak_at)) if part)
    return f"At the peak{f' ({parts})' if parts else ''}: {shares(report.bytes_by_kind_at_peak)}"


def _live(report: ProfileReport) -> Table | None:
    if not report.live_at_peak:
        return None
    rows = [
        (
            byte_cell(row.nbytes),
            row.kind.replace("_", " "),
            row.name,
            place(row.made_at),
            _shortened(row.code),
        )
        for row in report.live_at_peak[:_MOST_LIVE_ROWS]
    ]
    others = report.live_at_peak[_MOST_LIVE_ROWS:]
    if others:
        rows.append((byte_cell(sum(row.nbytes for row in others)), f"{len(others)} more", "", "", ""))
    return Table(
        ("live at the peak", "kind", "name", "made at", "line"), tuple(rows), left=frozenset({1, 2, 3, 4})
    )


def _shortened(code: str) -> str:
    line = " ".join(code.split())
    return line if len(line) <= _LONGEST_CODE else line[: _LONGEST_CODE - 3] + "..."


def _why_not_lower(report: ProfileReport) -> str:
    if report.lower_bound_bytes >= report.predicted_peak_with_workspace_bytes:
        return "Why not lower: the lower bound is reached; no order and no recomputation goes below it."
    text = (
        f"Room to go lower: at most {format_bytes(_room(report))}, as no plan goes below "
        f"{format_bytes(report.lower_bound_bytes)}"
    )
    bound, order_bound = format_bytes(report.lower_bound_bytes), format_bytes(report.order_lower_bound_bytes)
    if bound != order_bound:
        text += f"; below {order_bound} something has to be recomputed"
    return text + "."


def _room(report: ProfileReport) -> int:
    return report.predicted_peak_with_workspace_bytes - report.lower_bound_bytes


def _next(report: ProfileReport) -> str:
    target = report.name or "TARGET"
    if report.capacity_bytes is None or report.fits is None:
        return f"Next: neaptide compare {target} --peak 60%"
    if report.fits:
        return (
            f"Next: neaptide compare {target} --peak 60% --device {report.device}   "
            "(it fits; a plan makes room for a larger batch)"
        )
    if report.lower_bound_bytes > report.capacity_bytes:
        return (
            f"Next: a smaller batch or model, as no plan goes below {format_bytes(report.lower_bound_bytes)} "
            f"and {report.device} has {format_bytes(report.capacity_bytes)}"
        )
    return f"Next: neaptide plan {target} --peak {size_argument(report.capacity_bytes, at_least=False)} --device {report.device} -o plan.json"


def ranges_blocks(ranges: ShapeRanges | None) -> tuple[Block | None, ...]:
    """Dims with their ranges, why they end there, and peaks; nothing where no dim was said to vary."""
    if ranges is None:
        return ()
    rows = tuple(
        (
            ", ".join(f"{dim} = {size}" for dim, size in peak.sizes.items()),
            byte_cell(peak.predicted_peak_bytes),
        )
        for peak in ranges.peaks
    )
    return (
        bullets("Dims that vary", (*ranges.dims, *(f"where {relation}" for relation in ranges.relations))),
        bullets("For which sizes", ranges.notes),
        Table(("shape", "peak, with workspace by formula"), rows) if rows else None,
        *_fit_blocks(ranges.fit),
    )


def _fit_blocks(fit: FittingShapes | None) -> tuple[Block | None, ...]:
    if fit is None:
        return ()
    if not fit.rows:
        return (f"Largest within {format_bytes(fit.limit_bytes)}: no dim varies.",)
    first = fit.rows[0]
    header = (
        *(first.beside or ("largest",)),
        f"{first.dim}, in program order",
        f"{first.dim}, with points",
        "added time, predicted",
    )
    rows = tuple(
        (
            *(map(str, row.beside.values()) if row.beside else (row.dim,)),
            _size_cell(row, row.in_program_order),
            _size_cell(row, row.with_points),
            NOTHING if row.predicted_added_time is None else f"{row.predicted_added_time:+.1%}",
        )
        for row in fit.rows
    )
    return (f"Largest shapes within {format_bytes(fit.limit_bytes)}:", Table(header, rows))


def _size_cell(row: LargestSize, size: int | None) -> str:
    if size is None:
        return "none"
    return f"{size}, the end" if size == row.end else str(size)
