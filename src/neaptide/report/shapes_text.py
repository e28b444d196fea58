"""A plan for all shapes explained: for which sizes it holds and why, what was decided, and its peak over the range."""

from __future__ import annotations

from itertools import groupby
from typing import Final

from neaptide.plans import (
    PeakCurve,
    Plan,
    PointsRecord,
    RangePeaks,
    ShapesProgram,
    ShapesRecord,
    described_role,
)
from neaptide.report.cells import bullets, byte_cell, counted, origin, ratio_cell, seconds_cell
from neaptide.report.device_notes import predicted_only
from neaptide.report.document import Block, Document, Table, document
from neaptide.units import format_bytes

_STEADY: Final = "steady"


def shapes_document(plan: Plan, record: ShapesRecord, *, path: str | None = None) -> Document:
    """A plan for all shapes from top to bottom.

    Args:
        plan: as a whole.
        record: what it says of all shapes, with at least one program.
        path: of its file, for the next command; None when it was not saved.
    """
    main = next((program for program in record.programs if program.role == _STEADY), record.programs[0])
    return document(
        f"plan for {plan.name or 'step'} on {plan.device or 'this machine'}, for all shapes: "
        "predicted, nothing was run",
        predicted_only(plan.device, plan.captured_on),
        bullets("Dims that vary", (*map(str, main.dims), *(f"where {r}" for r in main.relations))),
        bullets("For which sizes", main.notes),
        f"Budget: {format_bytes(main.budget_bytes)} at every shape"
        + (f" (asked for: peak {plan.budget.peak})." if plan.budget.peak is not None else "."),
        peaks_table(main.peaks),
        *_decided(main),
        _other_programs(record, main),
        origin(plan.versions, plan.seed),
        next_line(plan, path),
    )


def peaks_table(peaks: RangePeaks) -> Table | None:
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


def next_line(plan: Plan, path: str | None) -> str:
    """The next command for a plan; `path` is that of its file, None where it was not saved."""
    if path is None:
        return "Next: save the plan, with -o plan.json or plan.save(...), and run it with neaptide run."
    return f"Next: neaptide run {plan.name or 'TARGET'} --plan {path} --verify"


def _decided(program: ShapesProgram) -> tuple[Block | None, ...]:
    if program.points is not None:
        return _points(program.points)
    return (
        f"Plans: {len(program.plans)}. A call runs the fastest that is within the budget at its shape.",
        _plans(program),
    )


def _points(points: PointsRecord) -> tuple[Block, ...]:
    host = (
        "" if points.host_bytes is None else f" Up to {format_bytes(points.host_bytes)} may wait on the host."
    )
    return (
        f"Order: {points.order_reason}.",
        (
            f"Points: {counted(points.points, 'place')} of {points.positions} between operations. What is evicted there is decided "
            f"at each call, for {points.kept} of {counted(points.found, 'gap')} between two uses of a storage.{host}"
        ),
        bullets(
            "Gaps left out, since no shape in the ranges can use them",
            (
                f"{points.no_way_back} of storages that nothing can make again",
                f"{points.no_bytes} of storages without bytes",
                f"{points.always_fits} in which nothing is ever above the budget",
            ),
        ),
    )


def _plans(program: ShapesProgram) -> Table:
    rows = []
    for number, plan in enumerate(program.plans):
        at = ", ".join(f"{dim} = {size}" for dim, size in (plan.planned_at or {}).items())
        rows.append(
            (
                str(number),
                at or "program order",
                seconds_cell(plan.seconds),
                str(len(plan.sequence) - program.node_count),
                "; ".join(found for curve in program.peaks.curves if (found := _used(curve, number)))
                or "no shape looked at",
            )
        )
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
    if not spans:
        return ""
    beside = f" with {curve.label()}" if curve.beside else ""
    return f"{curve.dim} {', '.join(spans)}{beside}"


def _other_programs(record: ShapesRecord, main: ShapesProgram) -> Table | None:
    rows = tuple(
        (
            described_role(program.role),
            ", ".join(map(str, program.dims)),
            str(program.points.points if program.points is not None else len(program.plans)),
            byte_cell(_largest(program)),
        )
        for program in record.programs
        if program is not main
    )
    header = ("other programs of this step", "dims", "points or plans", "largest peak of the plan")
    return Table(header, rows, left=frozenset({1})) if rows else None


def _largest(program: ShapesProgram) -> int | None:
    found = [peak for curve in program.peaks.curves for peak in curve.planned_peak_bytes]
    return max(found, default=None)
