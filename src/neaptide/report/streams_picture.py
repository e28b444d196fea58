"""The timeline of a plan with stays on the host, drawn: operations, both copy engines, and what is in flight."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from neaptide.errors import UsageError
from neaptide.plans import PlannedProgram, StayCopies, TimedCopy
from neaptide.report.byte_axis import byte_marks
from neaptide.report.picture_file import Sheet, matplotlib_module, svg_text, write_picture, xml_text
from neaptide.report.streams import Level, Streams, most
from neaptide.units import format_bytes, format_seconds

# Of the palette of Okabe and Ito, whose colours stay apart for every common kind of colour vision.
_RUNS: Final = "#009E73"
_WAITS: Final = "#E69F00"
_OUT: Final = "#0072B2"
_BACK: Final = "#D55E00"
_ON_HOST: Final = "#666666"
_WIDTH, _HEIGHT = 1200, 560
_LEFT, _RIGHT, _TOP, _BOTTOM = 130, 20, 80, 50  # margins
_ROW, _GAP = 46, 14
_CURVES_TOP: Final = _TOP + 3 * (_ROW + _GAP) + 10
_TICKS: Final = 5
_PNG_INCHES: Final = (12.0, 5.6)
_PNG_DPI: Final = 120


@dataclass(frozen=True, slots=True)
class _Bar:
    """A stretch of time in one of the three rows."""

    row: int
    begin: float
    end: float
    colour: str
    tip: str


def save_streams(path: str | Path, program: PlannedProgram, *, title: str = "") -> None:
    """Draw the timeline of a program into a file: `.svg`, or `.png` with the extra `plots`.

    Raises:
        UsageError: nothing waits on the host in it; another suffix, or the file cannot be written.
        MissingExtra: matplotlib is not installed.
    """
    streams = Streams.of(program)
    if streams is None:
        raise UsageError(
            "there is no timeline to draw",
            why="no storage of this plan waits on the host, so operations run one behind the other",
            next_step="plan with a budget that gives room on the host, such as --peak 60% --host 8GiB",
        )
    write_picture(
        path,
        lambda: streams_svg(streams, title=title),
        lambda target: _save_png(target, streams, title),
    )


def streams_svg(streams: Streams, *, title: str = "") -> str:
    """A timeline as SVG text: each copy has a tooltip with its storage and times. O(copies log copies)."""
    heading, summary = title or "timeline", _summary(streams)
    parts = [
        *_svg_legend(),
        *_svg_bars(streams),
        *_svg_curves(streams),
    ]
    return svg_text(Sheet(_WIDTH, _HEIGHT, _LEFT, _RIGHT), heading, summary, parts)


def _summary(streams: Streams) -> str:
    flying = most(streams.in_flight)
    return (
        f"{format_seconds(streams.seconds)}, of it {format_seconds(streams.waited)} waiting; "
        f"up to {format_bytes(streams.host_bytes)} on the host, {format_bytes(flying.nbytes)} in flight"
    )


def _bars(streams: Streams) -> Iterator[_Bar]:
    """What runs when, row by row."""
    begin = 0.0
    for waits, end in (*streams.copies.waits, (streams.seconds, streams.seconds)):
        if waits > begin:
            yield _Bar(0, begin, waits, _RUNS, f"operations\n{_span(begin, waits)}")
        if end > waits:
            yield _Bar(0, waits, end, _WAITS, f"waits for a copy\n{_span(waits, end)}")
        begin = end
    for number, copies, colour in ((1, streams.out, _OUT), (2, streams.back, _BACK)):
        for row, copy in copies:
            yield _Bar(number, copy.start, copy.end, colour, _tip(row, copy))


def _tip(row: StayCopies, copy: TimedCopy) -> str:
    asked = f"asked for at {format_seconds(copy.issued)}"
    return f"{row.name}\n{format_bytes(row.nbytes)}\n{asked}, {_span(copy.start, copy.end)}"


def _span(begin: float, end: float) -> str:
    return f"{format_seconds(begin)} to {format_seconds(end)}"


_ROWS: Final = ("operations", "to the host", "from the host")


def _x(streams: Streams, seconds: float) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * seconds / (streams.seconds or 1.0)


def _row_y(row: int) -> int:
    return _TOP + row * (_ROW + _GAP)


def _svg_legend() -> Iterator[str]:
    x = _LEFT
    for colour, label in (
        (_RUNS, "operations run"),
        (_WAITS, "they wait for a copy"),
        (_OUT, "copies to the host"),
        (_BACK, "copies from it"),
    ):
        yield f'<rect x="{x}" y="44" width="14" height="14" fill="{colour}"/>'
        yield f'<text x="{x + 19}" y="56">{label}</text>'
        x += 40 + 8 * len(label)
    for colour, label, dashes in (
        (_ON_HOST, "bytes on the host", ""),
        ("#000", "bytes in flight", ' stroke-dasharray="5 3"'),
    ):
        yield f'<path d="M{x} 51h18" stroke="{colour}" stroke-width="1.6"{dashes}/>'
        yield f'<text x="{x + 23}" y="56">{label}</text>'
        x += 44 + 8 * len(label)


def _svg_bars(streams: Streams) -> Iterator[str]:
    for row, label in enumerate(_ROWS):
        y = _row_y(row)
        yield f'<rect x="{_LEFT}" y="{y}" width="{_WIDTH - _LEFT - _RIGHT}" height="{_ROW}" fill="#eee"/>'
        yield f'<text x="{_LEFT - 8}" y="{y + _ROW / 2 + 4:.0f}" text-anchor="end">{label}</text>'
    # A dark rim keeps what is thinner than a pixel visible.
    yield '<g stroke="#000" stroke-opacity=".4" stroke-width=".4">'
    for bar in _bars(streams):
        x, width = _x(streams, bar.begin), _x(streams, bar.end) - _x(streams, bar.begin)
        yield (
            f'<rect x="{x:.2f}" y="{_row_y(bar.row)}" width="{width:.2f}" height="{_ROW}" '
            f'fill="{bar.colour}"><title>{xml_text(bar.tip)}</title></rect>'
        )
    yield "</g>"


def _svg_curves(streams: Streams) -> Iterator[str]:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    highest = max(most(streams.on_host).nbytes, most(streams.in_flight).nbytes, 1)

    def y(nbytes: int) -> float:
        return bottom - (bottom - _CURVES_TOP) * nbytes / highest

    for nbytes, label in byte_marks(highest):
        yield f'<path d="M{_LEFT} {y(nbytes):.2f}H{right}" stroke="#ddd"/>'
        yield f'<text x="{_LEFT - 8}" y="{y(nbytes) + 4:.2f}" text-anchor="end">{label}</text>'
    for tick in range(_TICKS):
        seconds = streams.seconds * tick / (_TICKS - 1)
        yield (
            f'<text x="{_x(streams, seconds):.2f}" y="{bottom + 18}" text-anchor="middle">'
            f"{format_seconds(seconds)}</text>"
        )
    for levels, style in (
        (streams.on_host, f'stroke="{_ON_HOST}"'),
        (streams.in_flight, 'stroke="#000" stroke-dasharray="5 3"'),
    ):
        path = "".join(f"H{_x(streams, at.seconds):.2f}V{y(at.nbytes):.2f}" for at in levels)
        yield f'<path d="M{_LEFT} {bottom}{path}H{right}" fill="none" stroke-width="1.6" {style}/>'


def _save_png(path: Path, streams: Streams, title: str) -> None:
    # Without pyplot there is no global state, and nothing opens a window.
    figure = matplotlib_module("figure").Figure(figsize=_PNG_INCHES, layout="constrained")
    rows, curves = figure.subplots(2, 1, sharex=True)
    for bar in _bars(streams):
        span = (bar.begin, bar.end - bar.begin)
        rows.broken_barh(
            [span], (bar.row - 0.4, 0.8), facecolors=bar.colour, edgecolors=(0, 0, 0, 0.4), linewidth=0.3
        )
    rows.set_yticks(range(len(_ROWS)), _ROWS)
    rows.invert_yaxis()
    for levels, label, style in (
        (streams.on_host, "bytes on the host", {"color": _ON_HOST}),
        (streams.in_flight, "bytes in flight", {"color": "black", "linestyle": "--"}),
    ):
        curves.step(*_steps(levels, streams.seconds), where="post", label=label, **style)
    curves.set_xlim(0, streams.seconds or 1.0)
    curves.set_ylim(bottom=0)
    curves.xaxis.set_major_formatter(lambda seconds, _position: format_seconds(seconds))
    highest = max(most(streams.on_host).nbytes, most(streams.in_flight).nbytes)
    places, labels = zip(*byte_marks(highest), strict=True)
    curves.set_yticks(places, labels)
    curves.legend()
    figure.suptitle(f"{title or 'timeline'}\n{_summary(streams)}", parse_math=False)
    figure.savefig(path, dpi=_PNG_DPI)


def _steps(levels: Sequence[Level], end: float) -> tuple[list[float], list[int]]:
    """Where a line changes, from the begin of the step to its end."""
    times = [0.0, *(level.seconds for level in levels), end]
    heights = [0, *(level.nbytes for level in levels)]
    return times, [*heights, heights[-1]]
