"""Bytes and seconds that a program for all shapes is predicted to take at one of them."""

from __future__ import annotations

from collections.abc import Mapping

from neaptide.cost.devices import Device
from neaptide.cost.model import EstimatedCost
from neaptide.cost.of_shapes import CostOfShapes
from neaptide.ops import registry
from neaptide.planner.points.plan import Decision
from neaptide.planner.points.script import ScriptWriter
from neaptide.planner.points.shaped import ShapedProgram
from neaptide.runtime.steps.planned_graph import PlannedGraph


def predicted_at(planned: PlannedGraph, shape: Mapping[str, int]) -> tuple[int, int]:
    """Predicted peak bytes of storages, and with workspace, of a program for all shapes at one of them.

    In an arena, those with a block of just the bytes of this shape.
    """
    if planned.by_shape is not None:
        shapes = planned.by_shape
        peaks = shapes.plans[shapes.choose(shape)].peaks
        return peaks.peak_bytes(shape), peaks.peak_with_workspace_bytes(shape)
    choice, limit = planned.choice(), planned.limit_bytes
    decisions = choice.decisions[choice.number(shape, limit)]
    sizes = decisions.in_parts(shape, limit)
    arena = None if planned.points is None else planned.points.arena
    if arena is not None:
        made = arena.within(decisions, sizes, limit)
        return made.peak_bytes, made.peak_with_workspace_bytes
    decision = decisions.of(sizes, limit)
    return storages_alone(decisions.plan.shaped, sizes, decision), decision.script.peak_bytes


def storages_alone(shaped: ShapedProgram, sizes: Mapping[str, int], decision: Decision) -> int:
    """Peak bytes of what is decided for a shape, without scratch bytes and without an arena."""
    plain = decision.sizes.with_storages_alone(shaped.units.order, shaped.bytes_in_bodies(sizes))
    return ScriptWriter(shaped, plain).script(decision.script.evictions).peak_bytes


def predicted_seconds_at(planned: PlannedGraph, shape: Mapping[str, int], device: Device) -> float:
    """Estimated seconds of a program for all shapes at one of them, with repetitions and copies. O(nodes)."""
    if planned.by_shape is not None:
        seconds = CostOfShapes(planned.graph, EstimatedCost(device, registry())).seconds(shape)
        schedule = planned.by_shape.plans[planned.by_shape.choose(shape)].schedule
        return sum(float(seconds[step.target]) for step in schedule.node_steps())
    return planned.choice().rank(shape, planned.limit_bytes)[1]
