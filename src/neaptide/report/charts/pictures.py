"""Every picture of a report as a chart: curves of time against memory, peaks over ranges, layouts, and timelines of copies."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from neaptide.errors import UsageError
from neaptide.layout.bounds import bytes_live_at, live_bytes
from neaptide.layout.problem import Buffer, LayoutProblem
from neaptide.layout.result import Layout
from neaptide.planner.recompute.curve.curve import CurvePoint, RecomputeCurve
from neaptide.plans import PeakCurve, PlannedProgram, RangePeaks, StayCopies, TimedCopy
from neaptide.report.charts.chart import (
    Axis,
    Box,
    Chart,
    Colour,
    Key,
    Line,
    Plot,
    byte_marks,
    count_marks,
    even_values,
)
from neaptide.report.charts.streams import Level, Streams, most
from neaptide.units import format_bytes, format_seconds

_LEAST_OVERHEAD = 0.01  # a curve without added time has an axis, too
_RANGE_COLOURS: Final = (Colour.BLUE, Colour.ORANGE, Colour.GREEN, Colour.PURPLE, Colour.SKY)
_COLOURS: Final[Mapping[str, str]] = {
    "activation": Colour.GREEN,
    "gradient": Colour.VERMILION,
    "temporary": Colour.ORANGE,
    "workspace": Colour.GREY,
    "output": Colour.YELLOW,
    "parameter": Colour.BLUE,
    "buffer": Colour.SKY,
    "optimizer_state": Colour.PURPLE,
    "input": "#BBBBBB",
    "": Colour.SKY,
}
_OTHER_KINDS: Final = (Colour.BLUE, Colour.PURPLE, "#882255", "#999933", "#332288", "#44AA99")
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


def curve_chart(curve: RecomputeCurve, *, title: str = "") -> Chart:
    """A curve as a chart: each plan within its budget has a tooltip with its numbers. O(points log points)."""
    reached = [point for point in curve.points if point.is_reached]
    plans = sorted(
        (point.peak_bytes, curve.overhead(point.seconds), _curve_tip(curve, point)) for point in reached
    )
    bounds = sorted(
        (point.budget_bytes, max(curve.overhead(point.bound_seconds), 0.0))
        for point in curve.points
        if math.isfinite(point.bound_seconds)
    )
    places = [(nbytes, overhead) for nbytes, overhead, _ in plans]
    most_bytes = max(curve.baseline_peak_bytes, *(nbytes for nbytes, _ in (*places, *bounds)), 1)
    highest = max((overhead for _, overhead in (*places, *bounds)), default=0.0) or _LEAST_OVERHEAD
    lines = []
    if bounds:
        lines.append(Line(tuple(bounds), Colour.VERMILION, is_dashed=True))
    if plans:
        lines.append(Line(tuple(places), Colour.BLUE, tips=tuple(tip for *_, tip in plans)))
    summary = (
        f"{len(curve.points)} budgets, from {format_bytes(curve.baseline_peak_bytes)} to "
        f"{format_bytes(curve.lowest_peak_bytes)}; none below {format_bytes(curve.lowest_bound_bytes)}"
    )
    plot = Plot(
        Axis(0, most_bytes, "peak", byte_marks(most_bytes)),
        Axis(0, highest, "added time", tuple((value, f"{value:+.1%}") for value in even_values(0, highest))),
        (Box(0, curve.lowest_bound_bytes, 0, highest, Colour.SHADE),),
        tuple(lines),
    )
    keys = (
        Key("plans", Colour.BLUE),
        Key("proved bound for this order", Colour.VERMILION, "dashes"),
        Key("out of reach", Colour.SHADE, "box"),
    )
    return Chart(title or "time against memory", summary, (plot,), keys)


def _curve_tip(curve: RecomputeCurve, point: CurvePoint) -> str:
    bound = curve.overhead(point.bound_seconds)
    return (
        f"budget {format_bytes(point.budget_bytes)}, peak {format_bytes(point.peak_bytes)}\n"
        f"{curve.overhead(point.seconds):+.2%} time, none below {bound:+.2%}\n{point.strategy}"
    )


def range_chart(peaks: RangePeaks, *, title: str = "") -> Chart:
    """Peaks over ranges as a chart: each point has a tooltip with its numbers. O(points)."""
    if not peaks.curves:
        raise UsageError(
            "there is no range to draw",
            why="no dim of this program varies, or the range of one has no end",
            next_step="give each dim a range with an end, such as --dynamic batch:1=16..4096",
        )
    lines: list[Line] = []
    for number, curve in enumerate(peaks.curves):
        colour = _RANGE_COLOURS[number % len(_RANGE_COLOURS)]
        lines.append(_range_line(curve, curve.baseline_peak_bytes, colour, "program order"))
        if curve.planned_peak_bytes:
            lines.append(_range_line(curve, curve.planned_peak_bytes, colour, "planned"))
    dim, limit = peaks.curves[0].dim, peaks.limit_bytes
    sizes = [size for curve in peaks.curves for size in curve.sizes]
    first, last = min(sizes), max(*sizes, min(sizes) + 1)
    heights = [
        peak for curve in peaks.curves for peak in (*curve.baseline_peak_bytes, *curve.planned_peak_bytes)
    ]
    highest = max(*heights, limit or 0, 1)
    keys = [Key("program order", Colour.GREY, "dashes")]
    if any(not line.is_dashed for line in lines):
        keys.append(Key("planned", Colour.GREY))
    summary = f"{dim} from {first} to {last}"
    if limit is not None:
        keys.append(Key("limit", Colour.VERMILION))
        lines.append(Line(((first, limit), (last, limit)), Colour.VERMILION, is_stepped=True))
        summary += f", limit {format_bytes(limit)}"
    plot = Plot(
        Axis(first, last, dim, count_marks(first, last)),
        Axis(0, highest, "predicted peak, with workspace by formula", byte_marks(highest)),
        lines=tuple(lines),
    )
    return Chart(title or "peak over the range of shapes", summary, (plot,), tuple(keys), right=130)


def _range_line(curve: PeakCurve, peaks: tuple[int, ...], colour: str, kind: str) -> Line:
    label, in_order = curve.label(), kind == "program order"
    tips = tuple(
        f"{f'{label}, ' if label else ''}{curve.dim} = {size}\n{kind}: {format_bytes(peak)}"
        for size, peak in zip(curve.sizes, peaks, strict=True)
    )
    points = tuple(zip(curve.sizes, peaks, strict=True))
    return Line(points, colour, is_dashed=in_order, tips=tips, end=label if in_order else "")


def layout_chart(problem: LayoutProblem, layout: Layout, *, title: str = "") -> Chart:
    """A layout as a chart: each buffer has a tooltip with its name, bytes, lifetime and offset. O(n log n)."""
    first, last = (int(problem.starts.min()), int(problem.ends.max())) if len(problem) else (0, 1)
    arena, live = max(layout.arena_bytes, 1), live_bytes(problem)
    colours = kind_colours(problem)
    points, totals = bytes_live_at(problem)
    steps = zip(points.tolist(), totals.tolist(), strict=True)
    above = f", {layout.arena_bytes / live - 1:.2%} above it" if layout.arena_bytes > live else ", the same"
    plot = Plot(
        Axis(first, last, "step", count_marks(first, last)),
        Axis(0, arena, "offset", byte_marks(arena)),
        tuple(box for kind in colours for box in _buffers(problem, layout, kind, colours[kind])),
        (Line(((first, 0), *steps), Colour.BLACK, is_stepped=True),),
    )
    return Chart(
        title or problem.name or "layout",
        f"{len(problem)} buffers, {format_bytes(live)} live at once, arena {format_bytes(layout.arena_bytes)}{above}",
        (plot,),
        (
            *(Key(_kind_label(kind), colour, "box") for kind, colour in colours.items()),
            Key("live bytes", Colour.BLACK),
        ),
        width=1200,
        height=680,
        right=20,
    )


def kind_colours(problem: LayoutProblem) -> dict[str, str]:
    """The colour of each kind in use, known kinds first. O(n)."""
    kinds = {buffer.kind for buffer in problem.buffers}
    others = sorted(kinds - _COLOURS.keys())
    colours = {kind: colour for kind, colour in _COLOURS.items() if kind in kinds}
    return colours | {kind: _OTHER_KINDS[k % len(_OTHER_KINDS)] for k, kind in enumerate(others)}


def _buffers(problem: LayoutProblem, layout: Layout, kind: str, colour: str) -> Iterator[Box]:
    for buffer, offset in zip(problem.buffers, layout.offsets, strict=True):
        if buffer.kind == kind:
            tip = _buffer_tip(buffer, offset)
            for part in buffer.parts():
                yield Box(part.start, part.end, offset + part.low, offset + part.high, colour, tip)


def _buffer_tip(buffer: Buffer, offset: int) -> str:
    kind = f" ({_kind_label(buffer.kind)})" if buffer.kind else ""
    size = f"{format_bytes(buffer.nbytes)}, {buffer.nbytes} bytes"
    return f"{buffer.name}{kind}\n{size}\nsteps [{buffer.start}, {buffer.end})\noffset {offset}"


def _kind_label(kind: str) -> str:
    return kind.replace("_", " ") or "buffers"


def streams_chart(program: PlannedProgram, *, title: str = "") -> Chart:
    """The timeline of a program: each copy has a tooltip with its storage and times. O(copies log copies)."""
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
                Line(_levels(streams.on_host, end), Colour.GREY, is_stepped=True),
                Line(_levels(streams.in_flight, end), Colour.BLACK, is_dashed=True, is_stepped=True),
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
            yield _bar(number, copy.start, copy.end, colour, _copy_tip(row, copy))


def _bar(row: int, begin: float, end: float, colour: str, tip: str = "") -> Box:
    return Box(begin, end, row + 1 - _GAP, row + _GAP, colour, tip)


def _copy_tip(row: StayCopies, copy: TimedCopy) -> str:
    asked = f"asked for at {format_seconds(copy.issued)}"
    return f"{row.name}\n{format_bytes(row.nbytes)}\n{asked}, {_span(copy.start, copy.end)}"


def _span(begin: float, end: float) -> str:
    return f"{format_seconds(begin)} to {format_seconds(end)}"


def _levels(levels: Sequence[Level], end: float) -> tuple[tuple[float, float], ...]:
    """Where a line changes, from the begin of the step to its end."""
    last = levels[-1].nbytes if levels else 0
    return ((0.0, 0), *((level.seconds, level.nbytes) for level in levels), (end, last))
