"""The streams of a plan with stays on the host, as text."""

from __future__ import annotations

from typing import Final

from neaptide.plans import PlannedProgram
from neaptide.report.cells import byte_cell, percent, seconds_cell
from neaptide.report.document import Table
from neaptide.report.streams import Streams, busy_seconds, most
from neaptide.units import format_bytes, format_seconds

_MOST_ROWS: Final = 10


def streams_lines(program: PlannedProgram) -> tuple[str | Table, ...]:
    """How busy the engines are, what is in flight, and when the largest storages leave and return."""
    streams = Streams.of(program)
    if streams is None:
        return ()
    out, back = busy_seconds(streams.out), busy_seconds(streams.back)
    flying = most(streams.in_flight)
    said = (
        f"Copies beside the operations: {len(streams.out)} to the host in {format_seconds(out)} "
        f"({percent(out, streams.seconds)} of the step), {len(streams.back)} from it in {format_seconds(back)} "
        f"({percent(back, streams.seconds)}). Up to {format_bytes(flying.nbytes)} in flight at once, in "
        f"{'1 copy' if flying.count == 1 else f'{flying.count} copies'}."
    )
    return said, _table(streams)


def _table(streams: Streams) -> Table:
    largest_first = sorted(streams.copies.rows, key=lambda row: (-row.nbytes, row.timed[0].issued))
    rows = [
        (
            row.name,
            byte_cell(row.nbytes),
            *(
                ("before", "")
                if row.out is None
                else (seconds_cell(row.out.issued), seconds_cell(row.out.end))
            ),
            *(
                ("next step", "")
                if row.back is None
                else (seconds_cell(row.back.issued), seconds_cell(row.back.end))
            ),
        )
        for row in largest_first[:_MOST_ROWS]
    ]
    if others := largest_first[_MOST_ROWS:]:
        rows.append((f"{len(others)} more", byte_cell(sum(row.nbytes for row in others)), "", "", "", ""))
    return Table(("waits on the host", "bytes", "leaves at", "gone at", "returns at", "back at"), tuple(rows))
