"""Peaks over the ranges of dims, drawn: one curve along a dim for each of some sizes of the others, and the limit."""

from __future__ import annotations

from typing import Final

from neaptide.errors import UsageError
from neaptide.plans import PeakCurve, RangePeaks
from neaptide.report.chart import Axis, Chart, Colour, Key, Line, Plot, byte_marks, count_marks
from neaptide.units import format_bytes

_COLOURS: Final = (Colour.BLUE, Colour.ORANGE, Colour.GREEN, Colour.PURPLE, Colour.SKY)


def range_chart(peaks: RangePeaks, *, title: str = "") -> Chart:
    """Peaks over ranges as a chart: each point has a tooltip with its numbers. O(points).

    Raises:
        UsageError: there is no curve.
    """
    if not peaks.curves:
        raise UsageError(
            "there is no range to draw",
            why="no dim of this program varies, or the range of one has no end",
            next_step="give each dim a range with an end, such as --dynamic batch:1=16..4096",
        )
    lines: list[Line] = []
    for number, curve in enumerate(peaks.curves):
        colour = _COLOURS[number % len(_COLOURS)]
        lines.append(_line(curve, curve.baseline_peak_bytes, colour, "program order"))
        if curve.planned_peak_bytes:
            lines.append(_line(curve, curve.planned_peak_bytes, colour, "planned"))
    dim, limit = peaks.curves[0].dim, peaks.limit_bytes
    sizes = [size for curve in peaks.curves for size in curve.sizes]
    first, last = min(sizes), max(*sizes, min(sizes) + 1)
    heights = [
        peak for curve in peaks.curves for peak in (*curve.baseline_peak_bytes, *curve.planned_peak_bytes)
    ]
    most = max(*heights, limit or 0, 1)
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
        Axis(0, most, "predicted peak, with workspace by formula", byte_marks(most)),
        lines=tuple(lines),
    )
    return Chart(title or "peak over the range of shapes", summary, (plot,), tuple(keys), right=130)


def _line(curve: PeakCurve, peaks: tuple[int, ...], colour: str, kind: str) -> Line:
    label, in_order = curve.label(), kind == "program order"
    tips = tuple(
        f"{f'{label}, ' if label else ''}{curve.dim} = {size}\n{kind}: {format_bytes(peak)}"
        for size, peak in zip(curve.sizes, peaks, strict=True)
    )
    points = tuple(zip(curve.sizes, peaks, strict=True))
    return Line(points, colour, is_dashed=in_order, tips=tips, end=label if in_order else "")
