"""The curve of time against memory, drawn: plans as points, the proved bound under them, what is out of reach shaded."""

from __future__ import annotations

import math

from neaptide.planner.recompute.curve.points import CurvePoint, RecomputeCurve
from neaptide.report.chart import Axis, Box, Chart, Colour, Key, Line, Plot, byte_marks, even_values
from neaptide.units import format_bytes

_LEAST_OVERHEAD = 0.01  # a curve without added time has an axis, too


def curve_chart(curve: RecomputeCurve, *, title: str = "") -> Chart:
    """A curve as a chart: each plan within its budget has a tooltip with its numbers. O(points log points)."""
    reached = [point for point in curve.points if point.is_reached]
    plans = sorted((point.peak_bytes, curve.overhead(point.seconds), _tip(curve, point)) for point in reached)
    bounds = sorted(
        (point.budget_bytes, max(curve.overhead(point.bound_seconds), 0.0))
        for point in curve.points
        if math.isfinite(point.bound_seconds)
    )
    places = [(nbytes, overhead) for nbytes, overhead, _ in plans]
    most_bytes = max(curve.baseline_peak_bytes, *(nbytes for nbytes, _ in (*places, *bounds)), 1)
    most = max((overhead for _, overhead in (*places, *bounds)), default=0.0) or _LEAST_OVERHEAD
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
        Axis(0, most, "added time", tuple((value, f"{value:+.1%}") for value in even_values(0, most))),
        (Box(0, curve.lowest_bound_bytes, 0, most, Colour.SHADE),),
        tuple(lines),
    )
    keys = (
        Key("plans", Colour.BLUE),
        Key("proved bound for this order", Colour.VERMILION, "dashes"),
        Key("out of reach", Colour.SHADE, "box"),
    )
    return Chart(title or "time against memory", summary, (plot,), keys)


def _tip(curve: RecomputeCurve, point: CurvePoint) -> str:
    bound = curve.overhead(point.bound_seconds)
    return (
        f"budget {format_bytes(point.budget_bytes)}, peak {format_bytes(point.peak_bytes)}\n"
        f"{curve.overhead(point.seconds):+.2%} time, none below {bound:+.2%}\n{point.strategy}"
    )
