"""What a program for all shapes is predicted to take at one of them."""

from __future__ import annotations

from collections.abc import Mapping

from neaptide.cost.devices import Device
from neaptide.cost.model import EstimatedCost
from neaptide.cost.of_shapes import CostOfShapes
from neaptide.ops import registry
from neaptide.planner.points.script import ScriptWriter
from neaptide.runtime.planned_graph import PlannedGraph


def predicted_at(planned: PlannedGraph, shape: Mapping[str, int]) -> tuple[int, int]:
    """Predicted peak bytes of storages, and with workspace, of a program for all shapes at one of them."""
    if planned.by_shape is not None:
        shapes = planned.by_shape
        peaks = shapes.plans[shapes.choose(shape)].peaks
        return peaks.peak_bytes(shape), peaks.peak_with_workspace_bytes(shape)
    choice, limit = planned.choice(), planned.limit_bytes
    decisions = choice.decisions[choice.number(shape, limit)]
    shaped, sizes = decisions.plan.shaped, decisions.in_parts(shape, limit)
    decision = decisions.of(sizes, limit)
    plain = decision.sizes.with_storages_alone(shaped.units.order, shaped.bytes_in_bodies(sizes))
    script = ScriptWriter(shaped, plain).script(decision.script.evictions)
    return script.peak_bytes, decision.script.peak_bytes


def predicted_seconds_at(planned: PlannedGraph, shape: Mapping[str, int], device: Device) -> float:
    """Estimated seconds of a program for all shapes at one of them, with repetitions and copies. O(nodes)."""
    if planned.by_shape is not None:
        seconds = CostOfShapes(planned.graph, EstimatedCost(device, registry())).seconds(shape)
        schedule = planned.by_shape.plans[planned.by_shape.choose(shape)].schedule
        return sum(float(seconds[step.target]) for step in schedule.node_steps())
    return planned.choice().rank(shape, planned.limit_bytes)[1]
