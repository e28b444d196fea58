"""A plan for all shapes as data: it is written down, read again as what was asked, and checked beside a capture."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import torch

from neaptide.analysis.legality.schedule import check_schedule
from neaptide.analysis.shape_peaks import ShapePeaks
from neaptide.ask import Ask, Dims
from neaptide.cost.model import EstimatedCost
from neaptide.errors import UsageError, VerifyError
from neaptide.frontends.dims.dynamic_dims import Dynamic, asked_range
from neaptide.frontends.programs.captured import CapturedProgram
from neaptide.ir.fingerprint import fingerprint
from neaptide.ir.graph import Graph
from neaptide.ir.schedule import Schedule
from neaptide.ops import registry
from neaptide.planner.points.plan import Decisions, point_plan
from neaptide.planner.points.shaped import ShapedProgram
from neaptide.plans import (
    AskedDim,
    Plan,
    PlanOfShapes,
    PointsRecord,
    RangePeaks,
    ShapesProgram,
    ShapesRecord,
    range_peaks,
    role_of,
    wrong_field,
)
from neaptide.policy.plan_facts import captured_on, plan_of
from neaptide.policy.points.for_all_shapes import for_all_shapes, host_space
from neaptide.policy.prepared_step import PreparedStep
from neaptide.runtime.shapes.limit_by_shape import PointsWithin
from neaptide.runtime.shapes.plans import ShapePlan, ShapePlans
from neaptide.runtime.steps.planned_graph import PlannedGraph, StepPlan


def plan_for_all_shapes(prepared: PreparedStep, ask: Ask) -> StepPlan:
    """One plan for all shapes of a step whose dims may vary, as data and ready to run."""
    variant = for_all_shapes(prepared, ask)
    programs = tuple(
        _program(planned, role_of(index), prepared) for index, planned in enumerate(variant.graphs)
    )
    record = ShapesRecord(asked_dims(ask.dims or {}), programs)
    plan = plan_of(prepared, ask, captured_on(prepared.captured), all_shapes=record)
    return StepPlan(plan, replace(variant, plan=plan))


def asked_dims(dynamic: Dynamic) -> tuple[AskedDim, ...]:
    """What was asked to vary, as data."""
    found = []
    for path, dims in dynamic.items():
        for axis, asked in dims.items():
            name, low, high = asked_range(path, axis, asked)
            is_named = isinstance(asked, torch.export.Dim)
            found.append(AskedDim(path, axis, low, high, name if is_named else ""))
    return tuple(found)


def dims_of_plan(plan: Plan, *, arena: bool) -> Dims | None:
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
    found: dict[str, dict[int, Any]] = {}
    for dim in plan.all_shapes.asked:
        asked = torch.export.Dim(dim.name, min=dim.low, max=dim.high) if dim.name else (dim.low, dim.high)
        found.setdefault(dim.path, {})[dim.axis] = asked
    return found


def peaks_over_range(planned: PlannedGraph, in_order: ShapedProgram) -> RangePeaks:
    """Predicted peaks of a program for all shapes along the ranges of its dims; `in_order` is the same in its own order."""
    dims, holds, limit = planned.graph.dims, planned.program.sizes.hold, planned.limit_bytes
    shapes = planned.by_shape
    if shapes is None:
        choice = planned.choice()
        return range_peaks(
            dims,
            holds,
            lambda shape: in_order.at(shape).peak_bytes,
            lambda shape: choice.at(shape, limit).script.peak_bytes,
            limit,
        )
    own = next(plan for plan in shapes.plans if plan.planned_at is None)
    return range_peaks(
        dims,
        holds,
        own.peaks.peak_with_workspace_bytes,
        lambda shape: shapes.at(shape).peaks.peak_with_workspace_bytes(shape),
        limit,
        shapes.choose,
    )


def in_program_order(graph: Graph, prepared: PreparedStep) -> ShapedProgram:
    """A program for all shapes in its own order."""
    largest = {dim.name: dim.high or dim.low for dim in graph.dims}
    return ShapedProgram(graph, EstimatedCost(prepared.device, registry()), range(len(graph.nodes)), largest)


def checked_for_all_shapes(
    entry: ShapesProgram, program: CapturedProgram, prepared: PreparedStep
) -> PlannedGraph:
    """What runs under an entry of a plan for all shapes, checked beside its program.

    Raises:
        PlanError: it is not legal here, or a number in it is not what the step gives; names the field.
    """
    graph = program.graph
    if entry.dims != graph.dims:
        raise wrong_field(
            f"{entry.role}.dims", f"is {', '.join(map(str, entry.dims))}, and the step has others"
        )
    planned = PlannedGraph.captured(program)
    if entry.points is not None:
        planned = replace(planned, points=_points(entry, entry.points, graph, prepared))
    else:
        planned = replace(planned, by_shape=_by_shape(entry, graph, prepared))
    told, found = entry.peaks, peaks_over_range(planned, in_program_order(graph, prepared))
    if entry.points is not None:  # peaks under the limit depend on the device
        told, found = _of_program_order(told), _of_program_order(found)
    if told != found:
        raise wrong_field(f"{entry.role}.peaks", "are not those of the step")
    return planned


def _program(planned: PlannedGraph, role: str, prepared: PreparedStep) -> ShapesProgram:
    graph, sizes, shapes = planned.graph, planned.program.sizes, planned.by_shape
    return ShapesProgram(
        role=role,
        name=graph.name,
        fingerprint=fingerprint(graph),
        node_count=len(graph.nodes),
        budget_bytes=planned.limit_bytes,
        dims=graph.dims,
        relations=tuple(map(str, graph.relations)),
        notes=sizes.notes,
        peaks=peaks_over_range(planned, in_program_order(graph, prepared)),
        points=None if planned.points is None else _points_record(planned.points),
        plans=()
        if shapes is None
        else tuple(PlanOfShapes(one.sequence, one.seconds, one.planned_at) for one in shapes.plans),
        workspace=() if shapes is None else tuple(sorted(shapes.workspace.items())),
    )


def _points_record(points: PointsWithin) -> PointsRecord:
    plan, host = points.plan, points.plan.host
    return PointsRecord(
        **asdict(plan.counts),
        order=tuple(plan.shaped.units.order),
        order_reason=points.order_reason,
        host_bytes=None if host is None else host.nbytes,
    )


def _points(entry: ShapesProgram, record: PointsRecord, graph: Graph, prepared: PreparedStep) -> PointsWithin:
    field, limit = f"{entry.role}.points", entry.budget_bytes
    _legal(graph, record.order, f"{field}.order", prepared)
    cost, host = (
        EstimatedCost(prepared.device, registry()),
        host_space(graph, prepared.device, record.host_bytes),
    )
    plan = point_plan(graph, cost, record.order, entry.largest, least_budget_bytes=limit, host=host)
    points = PointsWithin(plan, limit, record.order_reason)
    if _points_record(points) != record:
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
        schedule = _legal(graph, one.sequence, f"{entry.role}.plans[{number}].sequence", prepared)
        peaks = ShapePeaks(graph, schedule, entry.largest, workspace)
        plans.append(ShapePlan(schedule, peaks, one.seconds, one.planned_at))
    own = tuple(range(len(graph.nodes)))
    if [plan.sequence for plan in entry.plans if plan.planned_at is None] != [own]:
        raise wrong_field(f"{entry.role}.plans", "have not one in program order, planned at no shape")
    made = ShapePlans(entry.budget_bytes, tuple(plans), workspace)
    if plans[-1].peaks.peak_with_workspace_bytes(entry.largest) > entry.budget_bytes:
        raise wrong_field(f"{entry.role}.plans", "have none within the limit at the largest shape")
    return made


def _legal(graph: Graph, sequence: tuple[int, ...], field: str, prepared: PreparedStep) -> Schedule:
    schedule = Schedule.from_nodes(graph, sequence)
    try:
        check_schedule(graph, schedule, prepared.registry)
    except VerifyError as error:
        raise wrong_field(field, f"is not legal: {error.what}") from error
    return schedule


def _of_program_order(peaks: RangePeaks) -> RangePeaks:
    return replace(peaks, curves=tuple(replace(curve, planned_peak_bytes=()) for curve in peaks.curves))
