"""A chart in a file: SVG, or PNG."""

from __future__ import annotations

from pathlib import Path

from neaptide.errors import UsageError
from neaptide.report.chart import Chart
from neaptide.report.chart_png import matplotlib_module, save_png
from neaptide.report.chart_svg import chart_svg
from neaptide.writing import replacing, write_atomic


def check_picture_path(path: str | Path) -> Path:
    """Make sure, before anything long begins, that a picture can be drawn into such a file.

    Raises:
        UsageError: neither `.svg` nor `.png`.
        MissingExtra: `.png`, and matplotlib is not installed.
    """
    target = Path(path)
    if target.suffix not in {".svg", ".png"}:
        raise UsageError(
            f"{target.name!r} is no picture", where=str(target), next_step="end the name in .svg or .png"
        )
    if target.suffix == ".png":
        matplotlib_module("figure")
    return target


def save_chart(path: str | Path, chart: Chart) -> None:
    """Draw a chart into a file: `.svg`, or `.png` with the extra `plots`.

    Raises:
        UsageError: another suffix, or the file cannot be written.
        MissingExtra: matplotlib is not installed.
    """
    target = check_picture_path(path)
    try:
        if target.suffix == ".svg":
            write_atomic(target, chart_svg(chart))
        else:
            with replacing(target) as draft:
                save_png(draft, chart)
    except OSError as error:
        raise UsageError(
            "the picture cannot be written",
            where=str(target),
            why=error.strerror,
            next_step="write elsewhere",
        ) from error
