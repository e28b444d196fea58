"""What a program for all shapes is predicted to take at one of them."""

from __future__ import annotations

from collections.abc import Mapping

from neaptide.planner.points.plan import Decisions
from neaptide.planner.points.script import make_script
from neaptide.runtime.planned_graph import PlannedGraph


def predicted_at(planned: PlannedGraph, shape: Mapping[str, int]) -> tuple[int, int]:
    """Predicted peak bytes of storages, and with workspace, of a program for all shapes at one of them."""
    if planned.by_shape is not None:
        shapes = planned.by_shape
        peaks = shapes.plans[shapes.choose(shape)].peaks
        return peaks.peak_bytes(shape), peaks.peak_with_workspace_bytes(shape)
    assert planned.points is not None
    decision = Decisions(planned.points.plan).of(shape, planned.points.budget_bytes)
    plain = decision.sizes.without_workspace(planned.points.plan.shaped.units.order)
    script = make_script(planned.points.plan.shaped, plain, decision.script.evictions)
    return script.peak_bytes, decision.script.peak_bytes
