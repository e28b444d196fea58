"""The streams of a plan with stays on the host: operations, copies each way, and what is in flight between; and as text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from neaptide.plans import CopiesRecord, PlannedProgram, StayCopies, TimedCopy
from neaptide.report.cells import byte_cell, percent, seconds_cell
from neaptide.report.document import Table
from neaptide.units import format_bytes, format_seconds

_MOST_ROWS: Final = 10


@dataclass(frozen=True, slots=True)
class Level:
    """From a time on, in seconds from the begin of the step, until the next one: bytes, and of how many copies or storages."""

    seconds: float
    nbytes: int
    count: int


@dataclass(frozen=True)
class Streams:
    """What both the text and the picture tell of the copies of a program; its host bytes are by the order of steps."""

    seconds: float
    host_bytes: int
    copies: CopiesRecord

    @staticmethod
    def of(program: PlannedProgram) -> Streams | None:
        """Those of a program; None where nothing waits on the host, or nobody has played its copies."""
        if program.copies is None or not program.copies.rows:
            return None
        made = program.predictions
        return Streams(made.seconds, made.host_bytes, program.copies)

    @property
    def out(self) -> list[tuple[StayCopies, TimedCopy]]:
        """Copies to the host, as they begin."""
        return _as_they_begin((row, row.out) for row in self.copies.rows)

    @property
    def back(self) -> list[tuple[StayCopies, TimedCopy]]:
        """Copies from the host, as they begin."""
        return _as_they_begin((row, row.back) for row in self.copies.rows)

    @property
    def waited(self) -> float:
        """Seconds in which no operation runs."""
        return sum(end - begin for begin, end in self.copies.waits)

    @cached_property
    def in_flight(self) -> tuple[Level, ...]:
        """Bytes of copies that were asked for and are not done, of both directions. O(copies x log copies)."""
        return _levels((copy.issued, copy.end, row.nbytes) for row in self.copies.rows for copy in row.timed)

    @cached_property
    def on_host(self) -> tuple[Level, ...]:
        """Bytes of storages on the host, from where they are sent to where they are back. O(offloads x log offloads).

        By the order of steps they are there until the copy back is waited for, so `host_bytes` may be more.
        """
        return _levels(
            (
                0.0 if row.out is None else row.out.issued,
                self.seconds if row.back is None else row.back.end,
                row.nbytes,
            )
            for row in self.copies.rows
        )


def _as_they_begin(
    copies: Iterable[tuple[StayCopies, TimedCopy | None]],
) -> list[tuple[StayCopies, TimedCopy]]:
    made = [(row, copy) for row, copy in copies if copy is not None]
    return sorted(made, key=lambda pair: pair[1].start)


def busy_seconds(copies: Iterable[tuple[StayCopies, TimedCopy]]) -> float:
    """Seconds in which an engine copies."""
    return sum(copy.end - copy.start for _, copy in copies)


def most(levels: Iterable[Level]) -> Level:
    """The level with most bytes, the first of equals."""
    return max(levels, key=lambda level: level.nbytes, default=Level(0.0, 0, 0))


def _levels(spans: Iterable[tuple[float, float, int]]) -> tuple[Level, ...]:
    """How many bytes there are from each time on, of spans given as (begin, end, bytes)."""
    changes: dict[float, tuple[int, int]] = {}
    for begin, end, nbytes in spans:
        for when, sign in ((begin, 1), (end, -1)):
            total, count = changes.get(when, (0, 0))
            changes[when] = total + sign * nbytes, count + sign
    found: list[Level] = []
    held = number = 0
    for when in sorted(changes):
        held, number = held + changes[when][0], number + changes[when][1]
        found.append(Level(when, held, number))
    return tuple(found)


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
