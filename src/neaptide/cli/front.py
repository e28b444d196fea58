"""`sweep` where regions may run in parts: time against memory over the variants of a program."""

from __future__ import annotations

import csv
import io
import math
from typing import TYPE_CHECKING, Any, Final

from neaptide.cli import exit_codes
from neaptide.cli.command import Request
from neaptide.cli.commands import prepared_target
from neaptide.cli.interrupts import asking_before_aborting
from neaptide.cli.target_files import write_result
from neaptide.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from neaptide.planner.recompute.curve.points import RecomputeCurve
    from neaptide.planner.variants.front import VariantFront
    from neaptide.report.document import Document

_CSV_COLUMNS: Final = ("peak_bytes", "overhead", "variant")


def sweep_variants(request: Request) -> int:
    """Draws the front of a program whose regions may run in parts."""
    from neaptide.ask import CLOSE, Ask
    from neaptide.budget import Budget
    from neaptide.outcome import Limits
    from neaptide.planner.graph_search import check_strategy
    from neaptide.planner.variants import check_variants, inner_strategy
    from neaptide.policy.searched_front import searched_front
    from neaptide.report.chart_file import save_chart
    from neaptide.report.curve_picture import curve_chart

    settings, console = request.settings, request.console
    check_strategy(inner_strategy(settings.strategy), atomic=False)
    check_variants(settings.strategy, CLOSE)
    prepared = prepared_target(request)
    nodes = len(prepared.captured.steady.graph.nodes)
    time_s = settings.curve_time_limit_s(nodes)
    most = "" if time_s is None else f", for at most {format_seconds(time_s)}"
    console.progress(f"planning {nodes} operations within {settings.points} limits of time{most}")
    with asking_before_aborting() as interrupt:
        options = Ask(
            Budget("min"),
            settings.strategy,
            limits=Limits(time_s, settings.work_limit, settings.seed),
            interrupt=interrupt,
            numerics=CLOSE,
            workers=settings.workers,
        )
        front = searched_front(prepared, options, settings.points)
    if request.output is not None:
        write_result(request.output, front_csv(front))
        console.progress(f"front saved in {request.output}")
    if request.picture is not None:
        save_chart(request.picture, curve_chart(_drawn(front), title=request.target))
        console.progress(f"picture saved in {request.picture}")
    if console.as_json:
        console.json(front_content(front))
    else:
        console.document(front_document(front, request.target, settings.strategy))
    return exit_codes.DONE


def front_content(front: VariantFront) -> dict[str, Any]:
    """The front for `--json`."""
    return {
        "baseline_peak_bytes": front.baseline_peak_bytes,
        "baseline_seconds": front.baseline_seconds,
        "points": [
            {
                "peak_bytes": point.peak_bytes,
                "overhead": front.overhead(point.seconds),
                "variant": point.label,
            }
            for point in front.points
        ],
    }


def front_csv(front: VariantFront) -> str:
    """The front as CSV, one plan a row."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_CSV_COLUMNS)
    for point in front.points:
        writer.writerow((point.peak_bytes, f"{front.overhead(point.seconds):.6f}", point.label))
    return text.getvalue()


def front_document(front: VariantFront, name: str, strategy: str) -> Document:
    """The front as a table.

    Args:
        front: what was found.
        name: of the program.
        strategy: that found it.
    """
    from neaptide.ask import DEFAULT_STRATEGY
    from neaptide.report.document import Table, document

    rows = tuple(
        (
            format_bytes(point.peak_bytes),
            f"{point.peak_bytes / front.baseline_peak_bytes:.1%}" if front.baseline_peak_bytes else "",
            f"{front.overhead(point.seconds):+.2%}",
            point.label,
        )
        for point in front.points
    )
    chosen = () if strategy == DEFAULT_STRATEGY else (f"--strategy {strategy}",)
    options = ("--numerics close", *chosen, "--latency")
    return document(
        f"{name}: time against memory, regions in parts",
        Table(("peak", "of the peak", "added time", "variant"), rows, left=frozenset({3})),
        f"Sums may be taken in another order. Plan one of them with {', '.join(options[:-1])} and {options[-1]}.",
    )


def _drawn(front: VariantFront) -> RecomputeCurve:
    """The front as the curve that is drawn; nothing is proved of it."""
    from neaptide.planner.recompute.curve.points import CurvePoint, RecomputeCurve

    points = tuple(
        CurvePoint(point.peak_bytes, point.peak_bytes, point.seconds, math.inf, point.label, ())
        for point in front.points
    )
    lowest = min(point.peak_bytes for point in front.points)
    return RecomputeCurve(points, front.baseline_peak_bytes, front.baseline_seconds, lowest, 0)
