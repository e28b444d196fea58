"""The curve of time against memory, drawn: plans as points, the proved bound under them, what is out of reach shaded."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from neaptide.planner.recompute.curve.points import CurvePoint, RecomputeCurve
from neaptide.report.byte_axis import byte_marks
from neaptide.report.picture_file import Sheet, matplotlib_module, svg_text, write_picture, xml_text
from neaptide.units import format_bytes

# Of the palette of Okabe and Ito, whose colours stay apart for every common kind of colour vision.
_PLAN: Final = "#0072B2"
_BOUND: Final = "#D55E00"
_WIDTH, _HEIGHT = 1000, 600
_LEFT, _RIGHT, _TOP, _BOTTOM = 80, 30, 70, 60  # margins
_TICKS: Final = 5
_PNG_INCHES: Final = (10.0, 6.0)
_PNG_DPI: Final = 120


@dataclass(frozen=True, slots=True)
class CurveLines:
    """What both kinds of picture draw, as (bytes, overhead as a fraction).

    Attributes:
        plans: peak and overhead of each plan that is within its budget, from the smallest peak up.
        bounds: budget and least overhead that is proved for it, from the smallest up.
        lowest_bound_bytes: no plan with this order of first executions has a lower peak.
        most_bytes: the largest peak.
        most_overhead: the largest overhead, never zero.
    """

    plans: tuple[tuple[int, float], ...]
    bounds: tuple[tuple[int, float], ...]
    lowest_bound_bytes: int
    most_bytes: int
    most_overhead: float


def curve_lines(curve: RecomputeCurve) -> CurveLines:
    """The lines of a curve. O(points log points)."""
    reached = [point for point in curve.points if point.is_reached]
    plans = sorted({(point.peak_bytes, curve.overhead(point.seconds)) for point in reached})
    bounds = sorted(
        (point.budget_bytes, max(curve.overhead(point.bound_seconds), 0.0))
        for point in curve.points
        if math.isfinite(point.bound_seconds)
    )
    most = max((overhead for _, overhead in (*plans, *bounds)), default=0.0)
    return CurveLines(
        tuple(plans),
        tuple(bounds),
        curve.lowest_bound_bytes,
        max(curve.baseline_peak_bytes, *(nbytes for nbytes, _ in (*plans, *bounds)), 1),
        most or 0.01,
    )


def save_curve(path: str | Path, curve: RecomputeCurve, *, title: str = "") -> None:
    """Draw a curve into a file: `.svg`, or `.png` with the extra `plots`.

    Raises:
        UsageError: another suffix, or the file cannot be written.
        MissingExtra: matplotlib is not installed.
    """
    write_picture(
        path,
        lambda: curve_svg(curve, title=title),
        lambda target: _save_png(target, curve, title),
    )


def curve_svg(curve: RecomputeCurve, *, title: str = "") -> str:
    """A curve as SVG text: each plan has a tooltip with its numbers. O(points log points)."""
    lines = curve_lines(curve)
    heading, summary = title or "time against memory", _summary(curve)
    parts = [
        *_svg_legend(),
        *_svg_axes(lines),
        *_svg_lines(curve, lines),
    ]
    return svg_text(Sheet(_WIDTH, _HEIGHT, _LEFT, _RIGHT), heading, summary, parts)


def _summary(curve: RecomputeCurve) -> str:
    return (
        f"{len(curve.points)} budgets, from {format_bytes(curve.baseline_peak_bytes)} to "
        f"{format_bytes(curve.lowest_peak_bytes)}; none below {format_bytes(curve.lowest_bound_bytes)}"
    )


def _x(lines: CurveLines, nbytes: float) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * nbytes / lines.most_bytes


def _y(lines: CurveLines, overhead: float) -> float:
    return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * overhead / lines.most_overhead


def _svg_legend() -> Iterator[str]:
    yield f'<circle cx="{_LEFT + 7}" cy="45" r="4" fill="{_PLAN}"/>'
    yield f'<text x="{_LEFT + 20}" y="50">plans</text>'
    yield f'<path d="M{_LEFT + 75} 45h22" stroke="{_BOUND}" stroke-width="1.6" stroke-dasharray="5 3"/>'
    yield f'<text x="{_LEFT + 104}" y="50">proved bound for this order</text>'
    yield f'<rect x="{_LEFT + 295}" y="38" width="14" height="14" fill="#ddd"/>'
    yield f'<text x="{_LEFT + 315}" y="50">out of reach</text>'


def _svg_axes(lines: CurveLines) -> Iterator[str]:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    shaded = _x(lines, lines.lowest_bound_bytes) - _LEFT
    yield f'<rect x="{_LEFT}" y="{_TOP}" width="{shaded:.2f}" height="{bottom - _TOP}" fill="#ddd"/>'
    for tick in range(_TICKS):
        overhead = lines.most_overhead * tick / (_TICKS - 1)
        y = _y(lines, overhead)
        yield f'<path d="M{_LEFT} {y:.2f}H{right}" stroke="#ccc"/>'
        yield f'<text x="{_LEFT - 8}" y="{y + 4:.2f}" text-anchor="end">{overhead:+.1%}</text>'
    for nbytes, label in byte_marks(lines.most_bytes):
        x = _x(lines, nbytes)
        yield f'<path d="M{x:.2f} {bottom}v5" stroke="#888"/>'
        yield f'<text x="{x:.2f}" y="{bottom + 18}" text-anchor="middle">{label}</text>'
    middle = (_LEFT + right) / 2
    yield f'<text x="{middle:.0f}" y="{bottom + 42}" text-anchor="middle">peak, and added time above it</text>'


def _svg_lines(curve: RecomputeCurve, lines: CurveLines) -> Iterator[str]:
    for line, colour, dashes in ((lines.bounds, _BOUND, ' stroke-dasharray="5 3"'), (lines.plans, _PLAN, "")):
        if line:
            points = " ".join(f"{_x(lines, n):.2f},{_y(lines, o):.2f}" for n, o in line)
            yield f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.6"{dashes}/>'
    yield f'<g fill="{_PLAN}">'
    for point in curve.points:
        if point.is_reached:
            x = _x(lines, point.peak_bytes)
            y = _y(lines, curve.overhead(point.seconds))
            tip = xml_text(_tip(curve, point))
            yield f'<circle cx="{x:.2f}" cy="{y:.2f}" r="4"><title>{tip}</title></circle>'
    yield "</g>"


def _tip(curve: RecomputeCurve, point: CurvePoint) -> str:
    bound = curve.overhead(point.bound_seconds)
    return (
        f"budget {format_bytes(point.budget_bytes)}, peak {format_bytes(point.peak_bytes)}\n"
        f"{curve.overhead(point.seconds):+.2%} time, none below {bound:+.2%}\n{point.strategy}"
    )


def _save_png(path: Path, curve: RecomputeCurve, title: str) -> None:
    # Without pyplot there is no global state, and nothing opens a window.
    lines = curve_lines(curve)
    figure = matplotlib_module("figure").Figure(figsize=_PNG_INCHES, layout="constrained")
    axes = figure.subplots()
    axes.axvspan(0, lines.lowest_bound_bytes, color="#ddd", label="out of reach")
    if lines.bounds:
        axes.plot(
            *zip(*lines.bounds, strict=True),
            color=_BOUND,
            linestyle="--",
            label="proved bound for this order",
        )
    if lines.plans:
        axes.plot(*zip(*lines.plans, strict=True), color=_PLAN, marker="o", label="plans")
    axes.set_xlim(0, lines.most_bytes)
    axes.set_ylim(0, lines.most_overhead * 1.05)
    axes.set_xlabel("peak")
    axes.set_ylabel("added time")
    places, labels = zip(*byte_marks(lines.most_bytes), strict=True)
    axes.set_xticks(places, labels)
    axes.yaxis.set_major_formatter(lambda overhead, _position: f"{overhead:+.1%}")
    axes.set_title(f"{title or 'time against memory'}\n{_summary(curve)}", parse_math=False)
    axes.legend()
    figure.savefig(path, dpi=_PNG_DPI)
