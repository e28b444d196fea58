"""Reads a saved plan for all shapes: puts it beside a capture, judges it, and makes what runs. Nothing is searched for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from neaptide.analysis.legality import check_schedule
from neaptide.analysis.shape_peaks import ShapePeaks
from neaptide.cost.model import EstimatedCost
from neaptide.errors import PlanMismatch, UsageError, VerifyError
from neaptide.frontends.programs.captured import CapturedProgram, CapturedStep
from neaptide.ir.graph import Graph
from neaptide.ir.schedule import Schedule
from neaptide.ir.serial import fingerprint
from neaptide.ops import registry
from neaptide.planner.offload.host import HostSpace
from neaptide.planner.points.plan import Decisions, point_plan
from neaptide.plans import (
    STEADY,
    Plan,
    PointsRecord,
    RangePeaks,
    ShapesProgram,
    ShapesRecord,
    check_content,
    wrong_field,
)
from neaptide.policy.plan_matching import mismatch
from neaptide.policy.points.saved_plan import in_program_order, peaks_over_range, points_record
from neaptide.policy.prepared_step import PreparedStep
from neaptide.runtime.shapes.plans import ShapePlan, ShapePlans
from neaptide.runtime.steps.planned_graph import PlannedGraph, PlannedVariant, PointsWithin


def dynamic_of(record: ShapesRecord) -> dict[str, dict[int, Any]]:
    """The dims that a plan was asked to be for, as `dynamic=` of `compile_step` takes them."""
    found: dict[str, dict[int, Any]] = {}
    for dim in record.asked:
        asked = torch.export.Dim(dim.name, min=dim.low, max=dim.high) if dim.name else (dim.low, dim.high)
        found.setdefault(dim.path, {})[dim.axis] = asked
    return found


def dims_of_plan(plan: Plan, *, arena: bool) -> dict[str, dict[int, Any]] | None:
    """The dims that a plan is for all sizes of, as `dynamic=` takes them; None for a plan for one shape.

    Raises:
        UsageError: it has plans by shape or room on the host, and is to run in an arena.
    """
    if plan.all_shapes is None:
        return None
    for program in plan.all_shapes.programs if arena else ():
        if program.points is None or program.points.host_bytes:
            raise UsageError(
                f"a plan {'by shape' if program.points is None else 'with room on the host'} does not run in an arena",
                why="a layout by shape is for one program with points, and nothing in a block can leave it",
                next_step="run it without, or plan without that",
            )
    return dynamic_of(plan.all_shapes)


def matched_for_all_shapes(plan: Plan, prepared: PreparedStep) -> PlannedVariant:
    """What runs under a plan for all shapes, judged: orders are legal, bytes those that the step gives.

    With points, what may be evicted is found again from the order. What a call evicts is decided by the seconds of the
    device that it runs on, so peaks under the limit may be others than those in the plan.

    Args:
        plan: for all shapes; from this process or from a file, which is believed no more.
        prepared: the step, captured with the dims of the plan.

    Raises:
        PlanMismatch: the step is not the one that the plan was made for; says what differs.
        PlanError: the plan is not legal here, or a number in it is not what the step gives; names the field.
    """
    record = plan.all_shapes
    assert record is not None
    check_content(plan)
    captured = prepared.captured
    known = {program.fingerprint: program for program in record.programs}
    graphs = []
    for index, program in enumerate(captured.programs):
        entry = known.get(fingerprint(program.graph))
        if entry is None:
            raise _mismatch(plan, captured, index)
        if (entry.role == STEADY) != (index == 0):
            raise wrong_field("programs.role", f"is {entry.role!r} for a program that is another step here")
        graphs.append(_judged(entry, program, prepared))
    return PlannedVariant(captured, tuple(graphs), plan, prepared.slow)


def _mismatch(plan: Plan, captured: CapturedStep, index: int) -> PlanMismatch:
    """Ranges are told first: they depend on the sizes of the call that is captured."""
    assert plan.all_shapes is not None
    error = mismatch(plan, captured)
    then = next((p.dims for p in plan.all_shapes.programs if (p.role == STEADY) == (index == 0)), ())
    now = captured.programs[index].graph.dims
    if tuple(map(str, then)) != tuple(map(str, now)):
        told = ", ".join(map(str, now)) or "no dim that varies"
        error.why = f"captured at this call it is for {told}, the plan is for {', '.join(map(str, then))}"
    return error


def _judged(entry: ShapesProgram, program: CapturedProgram, prepared: PreparedStep) -> PlannedGraph:
    graph, field = program.graph, entry.role
    said = tuple((dim.name, dim.low, dim.high) for dim in entry.dims)
    if said != tuple((dim.name, dim.low, dim.high) for dim in graph.dims):
        raise wrong_field(f"{field}.dims", f"is {', '.join(map(str, entry.dims))}, and the step has others")
    planned = PlannedGraph.captured(program)
    if entry.points is not None:
        planned = replace(planned, points=_points(entry, entry.points, graph, prepared))
    else:
        planned = replace(planned, by_shape=_by_shape(entry, graph, prepared))
    _check_peaks(entry, peaks_over_range(planned, in_program_order(graph, prepared)))
    return planned


def _points(entry: ShapesProgram, record: PointsRecord, graph: Graph, prepared: PreparedStep) -> PointsWithin:
    field = f"{entry.role}.points"
    _check_legal(graph, record.order, f"{field}.order", prepared)
    cost = EstimatedCost(prepared.device, registry())
    host = HostSpace.of(graph, prepared.device, record.host_bytes) if record.host_bytes else None
    limit = entry.budget_bytes
    plan = point_plan(graph, cost, record.order, entry.largest, least_budget_bytes=limit, host=host)
    points = PointsWithin(plan, limit, record.order_reason)
    if points_record(points) != record:
        raise wrong_field(field, "are not those that the step has with this order")
    peak = Decisions(plan).of(entry.largest, limit).script.peak_bytes
    if peak > limit:
        raise wrong_field(
            f"{entry.role}.budget_bytes", f"is {limit}, and the largest shape was found to take {peak} here"
        )
    return points


def _by_shape(entry: ShapesProgram, graph: Graph, prepared: PreparedStep) -> ShapePlans:
    workspace = dict(entry.workspace)
    plans = []
    for number, one in enumerate(entry.plans):
        schedule = _check_legal(graph, one.sequence, f"{entry.role}.plans[{number}].sequence", prepared)
        peaks = ShapePeaks(graph, schedule, entry.largest, workspace)
        plans.append(ShapePlan(schedule, peaks, one.seconds, one.planned_at))
    own = tuple(range(len(graph.nodes)))
    if [plan.sequence for plan in entry.plans if plan.planned_at is None] != [own]:
        raise wrong_field(f"{entry.role}.plans", "have not one in program order, planned at no shape")
    made = ShapePlans(entry.budget_bytes, tuple(plans), workspace)
    if made.plans[-1].peaks.peak_with_workspace_bytes(entry.largest) > entry.budget_bytes:
        raise wrong_field(f"{entry.role}.plans", "have none within the limit at the largest shape")
    return made


def _check_legal(graph: Graph, sequence: tuple[int, ...], field: str, prepared: PreparedStep) -> Schedule:
    schedule = Schedule.from_nodes(graph, sequence)
    try:
        check_schedule(graph, schedule, prepared.registry)
    except VerifyError as error:
        raise wrong_field(field, f"is not legal: {error.what}") from error
    return schedule


def _check_peaks(entry: ShapesProgram, here: RangePeaks) -> None:
    """Peaks must be those of the step; with points, those under the limit depend on the device and are left alone."""
    told, found = entry.peaks, here
    if entry.points is not None:
        told, found = _of_program_order(told), _of_program_order(found)
    if told != found:
        raise wrong_field(f"{entry.role}.peaks", "are not those of the step")


def _of_program_order(peaks: RangePeaks) -> RangePeaks:
    return replace(peaks, curves=tuple(replace(curve, planned_peak_bytes=()) for curve in peaks.curves))
