"""The timeline of a plan with stays on the host, drawn: operations, both copy engines, and what is in flight."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from neaptide.errors import UsageError
from neaptide.plans import PlannedProgram, StayCopies, TimedCopy
from neaptide.report.chart import Axis, Box, Chart, Colour, Key, Line, Plot, byte_marks, even_values
from neaptide.report.streams import Level, Streams, most
from neaptide.units import format_bytes, format_seconds

_ROWS: Final = ("operations", "to the host", "from the host")
_GAP: Final = 0.1  # between rows, of the height of one
_KEYS: Final = (
    Key("operations run", Colour.GREEN, "box"),
    Key("they wait for a copy", Colour.ORANGE, "box"),
    Key("copies to the host", Colour.BLUE, "box"),
    Key("copies from it", Colour.VERMILION, "box"),
    Key("bytes on the host", Colour.GREY),
    Key("bytes in flight", Colour.BLACK, "dashes"),
)


def streams_chart(program: PlannedProgram, *, title: str = "") -> Chart:
    """The timeline of a program: each copy has a tooltip with its storage and times. O(copies log copies).

    Raises:
        UsageError: nothing waits on the host in it.
    """
    streams = Streams.of(program)
    if streams is None:
        raise UsageError(
            "there is no timeline to draw",
            why="no storage of this plan waits on the host, so operations run one after the other",
            next_step="plan with a budget that gives room on the host, such as --peak 60% --host 8GiB",
        )
    flying, highest = most(streams.in_flight), most(streams.on_host)
    summary = (
        f"{format_seconds(streams.seconds)}, of it {format_seconds(streams.waited)} waiting; "
        f"up to {format_bytes(streams.host_bytes)} on the host, {format_bytes(flying.nbytes)} in flight"
    )
    end = streams.seconds or 1.0
    time = Axis(0, end, "time", tuple((value, format_seconds(value)) for value in even_values(0, end)))
    most_bytes = max(highest.nbytes, flying.nbytes, 1)
    bands = tuple(_bar(row, 0, end, Colour.SHADE) for row in range(len(_ROWS)))
    names = tuple((row + 0.5, name) for row, name in enumerate(_ROWS))
    plots = (
        Plot(time, Axis(len(_ROWS), 0, marks=names), (*bands, *_bars(streams)), share=3),
        Plot(
            time,
            Axis(0, most_bytes, marks=byte_marks(most_bytes)),
            lines=(
                Line(_steps(streams.on_host, end), Colour.GREY, is_stepped=True),
                Line(_steps(streams.in_flight, end), Colour.BLACK, is_dashed=True, is_stepped=True),
            ),
            share=4,
        ),
    )
    return Chart(title or "timeline", summary, plots, _KEYS, width=1200, left=130, right=20)


def _bars(streams: Streams) -> Iterator[Box]:
    """What runs when, row by row."""
    begin = 0.0
    for waits, end in (*streams.copies.waits, (streams.seconds, streams.seconds)):
        if waits > begin:
            yield _bar(0, begin, waits, Colour.GREEN, f"operations\n{_span(begin, waits)}")
        if end > waits:
            yield _bar(0, waits, end, Colour.ORANGE, f"waits for a copy\n{_span(waits, end)}")
        begin = end
    for number, copies, colour in ((1, streams.out, Colour.BLUE), (2, streams.back, Colour.VERMILION)):
        for row, copy in copies:
            yield _bar(number, copy.start, copy.end, colour, _tip(row, copy))


def _bar(row: int, begin: float, end: float, colour: str, tip: str = "") -> Box:
    return Box(begin, end, row + 1 - _GAP, row + _GAP, colour, tip)


def _tip(row: StayCopies, copy: TimedCopy) -> str:
    asked = f"asked for at {format_seconds(copy.issued)}"
    return f"{row.name}\n{format_bytes(row.nbytes)}\n{asked}, {_span(copy.start, copy.end)}"


def _span(begin: float, end: float) -> str:
    return f"{format_seconds(begin)} to {format_seconds(end)}"


def _steps(levels: Sequence[Level], end: float) -> tuple[tuple[float, float], ...]:
    """Where a line changes, from the begin of the step to its end."""
    last = levels[-1].nbytes if levels else 0
    return ((0.0, 0), *((level.seconds, level.nbytes) for level in levels), (end, last))
