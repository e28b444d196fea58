"""A chart as SVG text. What has a tooltip tells its numbers where the pointer is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Final
from xml.sax.saxutils import escape

from neaptide.report.charts.chart import Chart, Line, Plot

# XML 1.0 has no way to write these, escaped or not.
_NOT_IN_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_TOP, _BOTTOM, _GAP = 70, 60, 24  # margins, and the room between plots
_DASHES: Final = ' stroke-dasharray="5 3"'
# A dark rim keeps what is thinner than a pixel visible; a light one would hide it.
_RIM: Final = ' stroke="#000" stroke-opacity=".4" stroke-width=".4"'


@dataclass(frozen=True, slots=True)
class _Frame:
    """Where a plot stands on the sheet, in pixels."""

    plot: Plot
    left: float
    right: float
    top: float
    bottom: float

    def x(self, value: float) -> float:
        return self.left + (self.right - self.left) * self.plot.x.share(value)

    def y(self, value: float) -> float:
        return self.bottom - (self.bottom - self.top) * self.plot.y.share(value)


def chart_svg(chart: Chart) -> str:
    """A chart as the text of an SVG file. O(points and boxes)."""
    title, summary = _xml(chart.title), _xml(chart.summary)
    frames = list(_frames(chart))
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {chart.width} {chart.height}" role="img">',
        f"<title>{title}</title>",
        f"<desc>{summary}</desc>",
        '<g font-family="sans-serif" font-size="13">',
        f'<rect width="{chart.width}" height="{chart.height}" fill="#fff"/>',
        f'<text x="{chart.left}" y="24" font-size="17">{title}</text>',
        f'<text x="{chart.width - chart.right}" y="24" text-anchor="end">{summary}</text>',
        *_legend(chart),
        *_x_axis(frames[-1]),
        *(part for frame in frames for part in (*_y_axis(frame), *_boxes(frame), *_lines(frame))),
        "</g>",
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _xml(text: str) -> str:
    return escape(_NOT_IN_XML.sub("\ufffd", text))


def _frames(chart: Chart) -> Iterator[_Frame]:
    room = chart.height - _TOP - _BOTTOM - _GAP * (len(chart.plots) - 1)
    top, whole = float(_TOP), sum(plot.share for plot in chart.plots)
    for plot in chart.plots:
        bottom = top + room * plot.share / whole
        yield _Frame(plot, chart.left, chart.width - chart.right, top, bottom)
        top = bottom + _GAP


def _legend(chart: Chart) -> Iterator[str]:
    x = chart.left
    for key in chart.keys:
        if key.form == "box":
            yield f'<rect x="{x}" y="38" width="14" height="14" fill="{key.colour}"/>'
        else:
            dashes = _DASHES if key.form == "dashes" else ""
            yield f'<path d="M{x} 45h18" stroke="{key.colour}" stroke-width="1.6"{dashes}/>'
        yield f'<text x="{x + 23}" y="50">{_xml(key.label)}</text>'
        x += 44 + 8 * len(key.label)


def _y_axis(frame: _Frame) -> Iterator[str]:
    for value, label in frame.plot.y.marks:
        y = frame.y(value)
        yield f'<path d="M{frame.left} {y:.2f}H{frame.right}" stroke="#ccc"/>'
        yield f'<text x="{frame.left - 8}" y="{y + 4:.2f}" text-anchor="end">{_xml(label)}</text>'
    if frame.plot.y.label:
        middle = (frame.top + frame.bottom) / 2
        yield (
            f'<text transform="translate(16 {middle:.0f}) rotate(-90)" text-anchor="middle">'
            f"{_xml(frame.plot.y.label)}</text>"
        )


def _x_axis(frame: _Frame) -> Iterator[str]:
    for value, label in frame.plot.x.marks:
        x = frame.x(value)
        yield f'<path d="M{x:.2f} {frame.bottom:.0f}v5" stroke="#888"/>'
        yield f'<text x="{x:.2f}" y="{frame.bottom + 18:.0f}" text-anchor="middle">{_xml(label)}</text>'
    middle = (frame.left + frame.right) / 2
    label = _xml(frame.plot.x.label)
    yield f'<text x="{middle:.0f}" y="{frame.bottom + 42:.0f}" text-anchor="middle">{label}</text>'


def _boxes(frame: _Frame) -> Iterator[str]:
    for (colour, has_rim), boxes in groupby(frame.plot.boxes, key=lambda box: (box.colour, bool(box.tip))):
        yield f'<g fill="{colour}"{_RIM if has_rim else ""}>'
        for box in boxes:
            x, y = frame.x(box.left), frame.y(box.high)
            width, height = frame.x(box.right) - x, frame.y(box.low) - y
            tip = f"><title>{_xml(box.tip)}</title></rect>" if has_rim else "/>"
            yield f'<rect x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}"{tip}'
        yield "</g>"


def _lines(frame: _Frame) -> Iterator[str]:
    for line in frame.plot.lines:
        places = [(frame.x(x), frame.y(y)) for x, y in line.points]
        yield _stroke(line, places)
        if line.tips:
            yield f'<g fill="{line.colour}">'
            for (x, y), tip in zip(places, line.tips, strict=True):
                yield f'<circle cx="{x:.2f}" cy="{y:.2f}" r="3.5"><title>{_xml(tip)}</title></circle>'
            yield "</g>"
        if line.end:
            x, y = places[-1]
            yield f'<text x="{x + 8:.2f}" y="{y + 4:.2f}" fill="{line.colour}">{_xml(line.end)}</text>'


def _stroke(line: Line, places: list[tuple[float, float]]) -> str:
    style = f'fill="none" stroke="{line.colour}" stroke-width="1.6"{_DASHES if line.is_dashed else ""}'
    if not line.is_stepped:
        return f'<polyline points="{" ".join(f"{x:.2f},{y:.2f}" for x, y in places)}" {style}/>'
    (x, y), *others = places
    steps = "".join(f"H{x:.2f}V{y:.2f}" for x, y in others)
    return f'<path d="M{x:.2f} {y:.2f}{steps}" {style} pointer-events="none"/>'
