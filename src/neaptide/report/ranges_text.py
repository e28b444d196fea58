"""What is predicted for a range of shapes, as people read it."""

from __future__ import annotations

from neaptide.report.cells import NOTHING, bullets, byte_cell
from neaptide.report.document import Block, Table
from neaptide.report.model import FittingShapes, LargestSize, ShapeRanges
from neaptide.units import format_bytes


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
