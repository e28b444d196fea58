"""Writes a plan for all shapes down as data that can be saved."""

from __future__ import annotations

from dataclasses import replace

import torch

from neaptide.analysis.sizes import evaluate_storage_bytes, main_device
from neaptide.ask import Ask
from neaptide.cost.model import EstimatedCost
from neaptide.frontends.dims.dynamic_dims import Dynamic, asked_range
from neaptide.ir.graph import Graph
from neaptide.ir.serial import fingerprint
from neaptide.ops import registry
from neaptide.planner.points.shaped import ShapedProgram
from neaptide.plans import (
    AskedDim,
    BudgetRecord,
    DimRange,
    Plan,
    PlanOfShapes,
    PointsRecord,
    RangePeaks,
    ShapesProgram,
    ShapesRecord,
    range_peaks,
)
from neaptide.policy.plan_facts import described_signature, versions
from neaptide.policy.points.for_all_shapes import for_all_shapes
from neaptide.policy.prepared_step import PreparedStep
from neaptide.runtime.shapes.plans import ShapePlans
from neaptide.runtime.steps.planned_graph import PlannedGraph, PointsWithin
from neaptide.runtime.steps.step_plan import StepPlan


def plan_for_all_shapes(prepared: PreparedStep, ask: Ask) -> StepPlan:
    """One plan for all shapes of a step, as data and ready to run.

    Args:
        prepared: a step whose dims may vary.
        ask: with the dims that vary.

    Raises:
        UsageError: a range has no end.
        InfeasibleBudget: no way was found to keep the largest shapes within the limit.
    """
    variant = for_all_shapes(prepared, ask)
    captured, asked = prepared.captured, ask.budget
    programs = tuple(
        _program(planned, "steady" if index == 0 else f"first_{index}", prepared)
        for index, planned in enumerate(variant.graphs)
    )
    steady = captured.steady.graph
    plan = Plan(
        programs=(),
        name=steady.name,
        budget=BudgetRecord(asked.peak, asked.latency, asked.outside_bytes, ask.least_bytes, asked.host),
        seed=ask.limits.seed,
        device=prepared.device.name,
        versions=versions(),
        signature=described_signature(captured),
        captured_on=_device(steady, programs[0].largest).partition(":")[0],
        allow_nondeterministic=prepared.registry.bits_may_vary,
        all_shapes=ShapesRecord(asked_dims(ask.dims or {}), programs),
        checkpoints=captured.checkpoints,
    )
    return StepPlan(plan, replace(variant, plan=plan))


def asked_dims(dynamic: Dynamic) -> tuple[AskedDim, ...]:
    """What was asked to vary, as data.

    Raises:
        UsageError: something is neither a range nor a `torch.export.Dim`.
    """
    found = []
    for path, dims in dynamic.items():
        for axis, asked in dims.items():
            name, low, high = asked_range(path, axis, asked)
            is_named = isinstance(asked, torch.export.Dim)
            found.append(AskedDim(path, axis, low, high, name if is_named else ""))
    return tuple(found)


def peaks_over_range(planned: PlannedGraph, in_order: ShapedProgram) -> RangePeaks:
    """Predicted peaks of a program along the ranges of its dims.

    Args:
        planned: with points or with plans by shape.
        in_order: the program in its own order.
    """
    limit = planned.limit_bytes
    holds = planned.program.sizes.hold
    if planned.points is not None:
        choice = planned.choice()
        return range_peaks(
            planned.graph.dims,
            holds,
            lambda shape: in_order.at(shape).peak_bytes,
            lambda shape: choice.at(shape, limit).script.peak_bytes,
            limit,
        )
    shapes = planned.by_shape
    assert shapes is not None
    own = next(plan for plan in shapes.plans if plan.planned_at is None)
    return range_peaks(
        planned.graph.dims,
        holds,
        own.peaks.peak_with_workspace_bytes,
        lambda shape: shapes.plans[shapes.choose(shape)].peaks.peak_with_workspace_bytes(shape),
        limit,
        shapes.choose,
    )


def in_program_order(graph: Graph, prepared: PreparedStep) -> ShapedProgram:
    """A program for all shapes in its own order."""
    largest = {dim.name: dim.high or dim.low for dim in graph.dims}
    return ShapedProgram(graph, EstimatedCost(prepared.device, registry()), range(len(graph.nodes)), largest)


def points_record(points: PointsWithin) -> PointsRecord:
    """What is written down of points."""
    plan = points.plan
    counts = plan.counts
    return PointsRecord(
        tuple(plan.shaped.units.order),
        points.order_reason,
        None if plan.host is None else plan.host.nbytes,
        counts.found,
        counts.no_way_back,
        counts.no_bytes,
        counts.always_fits,
        counts.points,
        counts.positions,
    )


def _program(planned: PlannedGraph, role: str, prepared: PreparedStep) -> ShapesProgram:
    graph, program = planned.graph, planned.program
    record = ShapesProgram(
        role,
        graph.name,
        fingerprint(graph),
        len(graph.nodes),
        tuple(DimRange(dim.name, dim.low, dim.high) for dim in graph.dims if dim.high is not None),
        tuple(map(str, graph.relations)),
        program.sizes.notes,
        planned.limit_bytes,
        peaks_over_range(planned, in_program_order(graph, prepared)),
    )
    if planned.points is not None:
        return replace(record, points=points_record(planned.points))
    assert planned.by_shape is not None
    return replace(
        record,
        plans=_plans(planned.by_shape),
        workspace=tuple(sorted(planned.by_shape.workspace.items())),
    )


def _plans(shapes: ShapePlans) -> tuple[PlanOfShapes, ...]:
    return tuple(
        PlanOfShapes(tuple(step.target for step in plan.schedule.node_steps()), plan.seconds, plan.planned_at)
        for plan in shapes.plans
    )


def _device(graph: Graph, shape: dict[str, int]) -> str:
    return main_device(graph, evaluate_storage_bytes(graph, shape))
