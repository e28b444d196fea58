"""What is predicted for a range of shapes, as people read it."""

from __future__ import annotations

from neaptide.report.cells import bullets, byte_cell
from neaptide.report.document import Block, Table
from neaptide.report.model import ShapeRanges


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
    )
