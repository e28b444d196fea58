"""A layout drawn: offset against time, coloured by what the bytes are for, with live bytes as a line over it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from neaptide.layout.bounds import bytes_live_at, live_bytes
from neaptide.layout.problem import Buffer, LayoutProblem
from neaptide.layout.result import Layout
from neaptide.report.chart import Axis, Box, Chart, Colour, Key, Line, Plot, byte_marks, count_marks
from neaptide.units import format_bytes

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
        tuple(box for kind in colours for box in _boxes(problem, layout, kind, colours[kind])),
        (Line(((first, 0), *steps), Colour.BLACK, is_stepped=True),),
    )
    return Chart(
        title or problem.name or "layout",
        f"{len(problem)} buffers, {format_bytes(live)} live at once, arena {format_bytes(layout.arena_bytes)}{above}",
        (plot,),
        (
            *(Key(_label(kind), colour, "box") for kind, colour in colours.items()),
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


def _boxes(problem: LayoutProblem, layout: Layout, kind: str, colour: str) -> Iterator[Box]:
    for buffer, offset in zip(problem.buffers, layout.offsets, strict=True):
        if buffer.kind == kind:
            tip = _tip(buffer, offset)
            for part in buffer.parts():
                yield Box(part.start, part.end, offset + part.low, offset + part.high, colour, tip)


def _tip(buffer: Buffer, offset: int) -> str:
    kind = f" ({_label(buffer.kind)})" if buffer.kind else ""
    size = f"{format_bytes(buffer.nbytes)}, {buffer.nbytes} bytes"
    return f"{buffer.name}{kind}\n{size}\nsteps [{buffer.start}, {buffer.end})\noffset {offset}"


def _label(kind: str) -> str:
    return kind.replace("_", " ") or "buffers"
