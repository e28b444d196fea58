"""Peaks over the ranges of dims, drawn: one curve along a dim for each of some sizes of the others, and the limit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from neaptide.errors import UsageError
from neaptide.plans import PeakCurve, RangePeaks
from neaptide.report.byte_axis import byte_marks
from neaptide.report.picture_file import Sheet, matplotlib_module, svg_text, write_picture, xml_text
from neaptide.units import format_bytes

# Of the palette of Okabe and Ito, whose colours stay apart for every common kind of colour vision.
_COLOURS: Final = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9")
_LIMIT: Final = "#D55E00"
_WIDTH, _HEIGHT = 1000, 600
_LEFT, _RIGHT, _TOP, _BOTTOM = 90, 130, 70, 60  # margins
_MOST_TICKS: Final = 8
_PNG_INCHES: Final = (10.0, 6.0)
_PNG_DPI: Final = 120


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the picture.

    Attributes:
        points: (size, bytes), by size.
        colour: of the palette.
        is_planned: drawn through; else it is that of program order, and dashed.
        label: sizes of the other dims; empty where there are none.
    """

    points: tuple[tuple[int, int], ...]
    colour: str
    is_planned: bool
    label: str


@dataclass(frozen=True, slots=True)
class RangeLines:
    """What both kinds of picture draw.

    Attributes:
        dim: along which the lines run.
        first: smallest size.
        last: largest size; above `first`.
        most_bytes: the highest peak, or the limit.
        limit_bytes: None for none.
        lines: for each curve that of program order, then that of the plan where there is one.
    """

    dim: str
    first: int
    last: int
    most_bytes: int
    limit_bytes: int | None
    lines: tuple[Line, ...]


def range_lines(peaks: RangePeaks) -> RangeLines:
    """The lines of some peaks.

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
        lines.append(_line(curve, curve.baseline_peak_bytes, colour, is_planned=False))
        if curve.planned_peak_bytes:
            lines.append(_line(curve, curve.planned_peak_bytes, colour, is_planned=True))
    sizes = [size for line in lines for size, _ in line.points]
    most = max(nbytes for line in lines for _, nbytes in line.points)
    return RangeLines(
        peaks.curves[0].dim,
        min(sizes),
        max(*sizes, min(sizes) + 1),
        max(most, peaks.limit_bytes or 0, 1),
        peaks.limit_bytes,
        tuple(lines),
    )


def save_ranges(path: str | Path, peaks: RangePeaks, *, title: str = "") -> None:
    """Draw peaks over ranges into a file: `.svg`, or `.png` with the extra `plots`.

    Raises:
        UsageError: there is no curve; another suffix, or the file cannot be written.
        MissingExtra: matplotlib is not installed.
    """
    lines = range_lines(peaks)
    write_picture(
        path,
        lambda: ranges_svg(lines, title=title),
        lambda target: _save_png(target, lines, title),
    )


def ranges_svg(lines: RangeLines, *, title: str = "") -> str:
    """Peaks over ranges as SVG text: each point has a tooltip with its numbers. O(points)."""
    heading = title or "peak over the range of shapes"
    parts = [*_svg_legend(lines), *_svg_axes(lines), *_svg_lines(lines), *_svg_labels(lines)]
    return svg_text(Sheet(_WIDTH, _HEIGHT, _LEFT, _RIGHT), heading, _summary(lines), parts)


def _line(curve: PeakCurve, peaks: Sequence[int], colour: str, *, is_planned: bool) -> Line:
    return Line(tuple(zip(curve.sizes, peaks, strict=True)), colour, is_planned, curve.label())


def _summary(lines: RangeLines) -> str:
    along = f"{lines.dim} from {lines.first} to {lines.last}"
    return along if lines.limit_bytes is None else f"{along}, limit {format_bytes(lines.limit_bytes)}"


def size_marks(first: int, last: int) -> tuple[int, ...]:
    """Round sizes in a range, and its ends.

    >>> size_marks(16, 4096)
    (16, 1000, 2000, 3000, 4096)
    """
    step = 1
    while (last - first) // step >= _MOST_TICKS:
        step = step * 5 // 2 if str(step).startswith("2") else step * 2
    inner = range((first // step + 1) * step, last, step)
    return (first, *(size for size in inner if min(size - first, last - size) * 2 >= step), last)


def _x(lines: RangeLines, size: float) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (size - lines.first) / (lines.last - lines.first)


def _y(lines: RangeLines, nbytes: float) -> float:
    return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * nbytes / lines.most_bytes


def _svg_legend(lines: RangeLines) -> Iterator[str]:
    yield f'<path d="M{_LEFT} 45h22" stroke="#444" stroke-width="1.6" stroke-dasharray="5 3"/>'
    yield f'<text x="{_LEFT + 29}" y="50">program order</text>'
    if any(line.is_planned for line in lines.lines):
        yield f'<path d="M{_LEFT + 145} 45h22" stroke="#444" stroke-width="1.6"/>'
        yield f'<text x="{_LEFT + 174}" y="50">planned</text>'
    if lines.limit_bytes is not None:
        yield f'<path d="M{_LEFT + 250} 45h22" stroke="{_LIMIT}" stroke-width="1.6"/>'
        yield f'<text x="{_LEFT + 279}" y="50">limit</text>'


def _svg_axes(lines: RangeLines) -> Iterator[str]:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    for nbytes, label in byte_marks(lines.most_bytes):
        y = _y(lines, nbytes)
        yield f'<path d="M{_LEFT} {y:.2f}H{right}" stroke="#ccc"/>'
        yield f'<text x="{_LEFT - 8}" y="{y + 4:.2f}" text-anchor="end">{label}</text>'
    for size in size_marks(lines.first, lines.last):
        x = _x(lines, size)
        yield f'<path d="M{x:.2f} {bottom}v5" stroke="#888"/>'
        yield f'<text x="{x:.2f}" y="{bottom + 18}" text-anchor="middle">{size}</text>'
    if lines.limit_bytes is not None:
        yield f'<path d="M{_LEFT} {_y(lines, lines.limit_bytes):.2f}H{right}" stroke="{_LIMIT}" stroke-width="1.6"/>'
    middle = (_LEFT + right) / 2
    text = xml_text(f"{lines.dim}, and the predicted peak with workspace by formula above it")
    yield f'<text x="{middle:.0f}" y="{bottom + 42}" text-anchor="middle">{text}</text>'


def _svg_lines(lines: RangeLines) -> Iterator[str]:
    for line in lines.lines:
        dashes = "" if line.is_planned else ' stroke-dasharray="5 3"'
        points = " ".join(f"{_x(lines, size):.2f},{_y(lines, peak):.2f}" for size, peak in line.points)
        yield f'<polyline points="{points}" fill="none" stroke="{line.colour}" stroke-width="1.6"{dashes}/>'
        yield f'<g fill="{line.colour}">'
        for size, peak in line.points:
            tip = xml_text(_tip(lines, line, size, peak))
            place = f'cx="{_x(lines, size):.2f}" cy="{_y(lines, peak):.2f}"'
            yield f'<circle {place} r="3"><title>{tip}</title></circle>'
        yield "</g>"


def _svg_labels(lines: RangeLines) -> Iterator[str]:
    """What the other dims are, at the end of each curve."""
    for line in lines.lines:
        if line.label and not line.is_planned:
            size, peak = line.points[-1]
            x, y = _x(lines, size) + 8, _y(lines, peak) + 4
            yield f'<text x="{x:.2f}" y="{y:.2f}" fill="{line.colour}">{xml_text(line.label)}</text>'


def _tip(lines: RangeLines, line: Line, size: int, peak: int) -> str:
    shape = ", ".join(part for part in (line.label, f"{lines.dim} = {size}") if part)
    return f"{shape}\n{'planned' if line.is_planned else 'program order'}: {format_bytes(peak)}"


def _save_png(path: Path, lines: RangeLines, title: str) -> None:
    # Without pyplot there is no global state, and nothing opens a window.
    figure = matplotlib_module("figure").Figure(figsize=_PNG_INCHES, layout="constrained")
    axes = figure.subplots()
    for line in lines.lines:
        kind = "planned" if line.is_planned else "program order"
        axes.plot(
            *zip(*line.points, strict=True),
            color=line.colour,
            linestyle="-" if line.is_planned else "--",
            marker="o",
            markersize=3,
            label=", ".join(part for part in (line.label, kind) if part),
        )
    if lines.limit_bytes is not None:
        axes.axhline(lines.limit_bytes, color=_LIMIT, label="limit")
    axes.set_xlim(lines.first, lines.last)
    axes.set_ylim(0, lines.most_bytes * 1.05)
    axes.set_xlabel(lines.dim)
    axes.set_ylabel("predicted peak, with workspace by formula")
    axes.set_xticks(size_marks(lines.first, lines.last))
    places, labels = zip(*byte_marks(lines.most_bytes), strict=True)
    axes.set_yticks(places, labels)
    axes.set_title(f"{title or 'peak over the range of shapes'}\n{_summary(lines)}", parse_math=False)
    axes.legend()
    figure.savefig(path, dpi=_PNG_DPI)
