"""A plan for all shapes explained: for which sizes it holds and why, what was decided, and its peak over the range."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from neaptide.plans import PeakCurve, Plan, PointsRecord, RangePeaks, ShapesProgram, described_role
from neaptide.report.cells import bullets, byte_cell, counted, ratio_cell, seconds_cell
from neaptide.report.document import Block, Table
from neaptide.units import format_bytes


def shapes_blocks(plan: Plan, main: ShapesProgram) -> Iterator[Block | None]:
    """What is told of the usual program."""
    yield bullets("Dims that vary", (*map(str, main.dims), *(f"where {r}" for r in main.relations)))
    yield bullets("For which sizes", main.notes)
    asked = "" if plan.budget.peak is None else f" (asked for: peak {plan.budget.peak})"
    yield f"Budget: {format_bytes(main.budget_bytes)} at every shape{asked}."
    yield _peaks_table(main.peaks)
    if main.points is not None:
        yield from _points(main.points)
        return
    yield f"Plans: {len(main.plans)}. A call runs the fastest that is within the budget at its shape."
    yield _plans(main)


def _peaks_table(peaks: RangePeaks) -> Table | None:
    """Peaks at the ends and in the middle of each curve; None where there is none."""
    rows = []
    for curve in peaks.curves:
        last = len(curve.sizes) - 1
        for at in dict.fromkeys((0, last // 2, last)):
            shape = ", ".join(part for part in (curve.label(), f"{curve.dim} = {curve.sizes[at]}") if part)
            baseline = curve.baseline_peak_bytes[at]
            planned = curve.planned_peak_bytes[at] if curve.planned_peak_bytes else None
            rows.append((shape, byte_cell(baseline), byte_cell(planned), ratio_cell(planned, baseline)))
    header = ("shape", "program order, with workspace", "plan, with workspace", "ratio")
    return Table(header, tuple(rows)) if rows else None


def _points(points: PointsRecord) -> Iterator[Block]:
    host = (
        "" if points.host_bytes is None else f" Up to {format_bytes(points.host_bytes)} may wait on the host."
    )
    yield f"Order: {points.order_reason}."
    yield (
        f"Points: {counted(points.points, 'place')} of {points.positions} between operations. What is evicted there is decided "
        f"at each call, for {points.kept} of {counted(points.found, 'gap')} between two uses of a storage.{host}"
    )
    yield bullets(
        "Gaps left out, since no shape in the ranges can use them",
        (
            f"{points.no_way_back} of storages that nothing can make again",
            f"{points.no_bytes} of storages without bytes",
            f"{points.always_fits} in which nothing is ever above the budget",
        ),
    )


def _plans(program: ShapesProgram) -> Table:
    rows = []
    for number, plan in enumerate(program.plans):
        at = ", ".join(f"{dim} = {size}" for dim, size in (plan.planned_at or {}).items())
        used = "; ".join(found for curve in program.peaks.curves if (found := _used(curve, number)))
        again = str(len(plan.sequence) - program.node_count)
        time = seconds_cell(plan.seconds)
        rows.append((str(number), at or "program order", time, again, used or "no shape looked at"))
    header = ("plan", "searched for", "time at the largest shape", "recomputed operations", "runs at")
    return Table(header, tuple(rows), left=frozenset({1, 4}))


def _used(curve: PeakCurve, number: int) -> str:
    """The sizes of a curve that run a plan, in words; empty where none does."""
    spans = []
    for is_used, group in groupby(
        zip(curve.sizes, curve.plans, strict=True), lambda entry: entry[1] == number
    ):
        if is_used:
            sizes = [size for size, _ in group]
            spans.append(str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]}..{sizes[-1]}")
    beside = f" with {curve.label()}" if curve.beside else ""
    return f"{curve.dim} {', '.join(spans)}{beside}" if spans else ""


def other_programs_of_shapes(plan: Plan, main: ShapesProgram) -> Table | None:
    """The programs of the first steps; None where there are none."""
    others = [one for one in plan.entries if isinstance(one, ShapesProgram) and one is not main]
    rows = tuple(
        (
            described_role(program.role),
            ", ".join(map(str, program.dims)),
            str(program.points.points if program.points is not None else len(program.plans)),
            byte_cell(max((b for c in program.peaks.curves for b in c.planned_peak_bytes), default=None)),
        )
        for program in others
    )
    header = ("other programs of this step", "dims", "points or plans", "largest peak of the plan")
    return Table(header, rows, left=frozenset({1})) if rows else None
