"""A chart in a file: SVG, or PNG drawn by matplotlib."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from neaptide.errors import MissingExtra, UsageError, how_to_install
from neaptide.files.writing import replacing
from neaptide.report.charts.chart import Chart, Plot
from neaptide.report.charts.svg import chart_svg

_PIXELS_PER_INCH: Final = 100
_DPI: Final = 120
_RIM: Final = (0.0, 0.0, 0.0, 0.4)


def check_picture_path(path: str | Path) -> Path:
    """Make sure, before anything long begins, that a picture can be drawn into such a file."""
    target = Path(path)
    if target.suffix not in WRITERS:
        raise UsageError(
            f"{target.name!r} is no picture",
            where=str(target),
            next_step=f"end the name in {' or '.join(WRITERS)}",
        )
    if target.suffix == ".png":
        matplotlib_module("figure")
    return target


def save_chart(path: str | Path, chart: Chart) -> None:
    """Draw a chart into a file: `.svg`, or `.png` with the extra `plots`."""
    target = check_picture_path(path)
    try:
        with replacing(target) as draft:
            WRITERS[target.suffix](draft, chart)
    except OSError as error:
        what = "the picture cannot be written"
        raise UsageError(what, where=str(target), why=error.strerror, next_step="write elsewhere") from error


def _save_png(path: Path, chart: Chart) -> None:
    """Write a chart; the picture has 1.2 times the pixels that the chart says."""
    # Without pyplot there is no global state, and nothing opens a window.
    size = (chart.width / _PIXELS_PER_INCH, chart.height / _PIXELS_PER_INCH)
    figure = matplotlib_module("figure").Figure(figsize=size, layout="constrained")
    shares = [plot.share for plot in chart.plots]
    rows = figure.subplots(len(shares), 1, sharex=True, squeeze=False, height_ratios=shares)
    for plot, axes in zip(chart.plots, rows[:, 0], strict=True):
        _draw(plot, axes)
    bottom = chart.plots[-1].x
    rows[-1, 0].set_xlabel(bottom.label, parse_math=False)
    rows[-1, 0].set_xticks(*_ticks(bottom.marks))
    figure.suptitle(f"{chart.title}\n{chart.summary}", parse_math=False, fontsize="medium")
    figure.legend(handles=list(_handles(chart)), loc="outside lower center", ncols=6)
    figure.savefig(path, dpi=_DPI)


WRITERS: Final[dict[str, Callable[[Path, Chart], object]]] = {
    ".svg": lambda path, chart: path.write_text(chart_svg(chart), encoding="utf-8", newline="\n"),
    ".png": _save_png,
}
"""By the end of a name, what draws a chart into such a file: the same bytes again, and whole or not at all.

`tests/report/test_chart_writer_conformance.py` holds each to this.
"""


def _draw(plot: Plot, axes: Any) -> None:
    collections = matplotlib_module("collections")
    for (colour, has_rim), boxes in groupby(plot.boxes, key=lambda box: (box.colour, bool(box.tip))):
        corners = [[(b.left, b.low), (b.right, b.low), (b.right, b.high), (b.left, b.high)] for b in boxes]
        rim = _RIM if has_rim else "none"
        axes.add_collection(
            collections.PolyCollection(corners, facecolors=colour, edgecolors=rim, linewidths=0.3)
        )
    for line in plot.lines:
        axes.plot(
            *zip(*line.points, strict=True),
            color=line.colour,
            linestyle="--" if line.is_dashed else "-",
            linewidth=1.2,
            drawstyle="steps-post" if line.is_stepped else "default",
            marker="o" if line.tips else "",
            markersize=4,
            clip_on=False,
        )
        if line.end:
            axes.annotate(
                line.end,
                line.points[-1],
                (6, 0),
                textcoords="offset points",
                va="center",
                color=line.colour,
                parse_math=False,
            )
    axes.set_xlim(plot.x.first, plot.x.last)
    axes.set_ylim(plot.y.first, plot.y.last)
    axes.set_yticks(*_ticks(plot.y.marks))
    axes.set_ylabel(plot.y.label, parse_math=False)
    axes.grid(axis="y", color="#ccc")
    axes.set_axisbelow(True)


def _ticks(marks: tuple[tuple[float, str], ...]) -> tuple[list[float], list[str]]:
    return [value for value, _ in marks], [label for _, label in marks]


def _handles(chart: Chart) -> Iterator[Any]:
    patches, lines = matplotlib_module("patches"), matplotlib_module("lines")
    for key in chart.keys:
        if key.form == "box":
            yield patches.Patch(color=key.colour, label=key.label)
        else:
            style = "--" if key.form == "dashes" else "-"
            yield lines.Line2D([], [], color=key.colour, linestyle=style, label=key.label)


def matplotlib_module(name: str) -> ModuleType:
    """A module of matplotlib."""
    try:
        return importlib.import_module(f"matplotlib.{name}")
    except ImportError as error:
        raise MissingExtra(
            "matplotlib is not installed",
            why="pictures in PNG are drawn with it; SVG needs nothing",
            next_step=f"{how_to_install('plots')}, or end the name in .svg",
        ) from error
