"""Plans the arena of a program with points, whose layout follows from the shape of a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from neaptide.cost.devices import Device
from neaptide.cost.model import EstimatedCost
from neaptide.errors import InfeasibleBudget, UsageError
from neaptide.ir.loop_maps import chosen_dims
from neaptide.ir.registry import OpRegistry
from neaptide.ir.with_sizes import with_sizes
from neaptide.planner.points.instances import script_instances
from neaptide.planner.points.plan import Decisions, point_plan
from neaptide.runtime.arena.layout_by_shape import ArenaOfShapes
from neaptide.runtime.arena.out_probe import OutFacts, probe_outs
from neaptide.runtime.arena.plan import ArenaOptions
from neaptide.runtime.arena.results_by_shape import arena_results
from neaptide.runtime.calls.way_through import way_through
from neaptide.runtime.steps.arena_report import arena_on_the_way
from neaptide.runtime.steps.planned_graph import PlannedGraph
from neaptide.units import format_bytes

_PROBED: Final = (16, 4)
"""What is written where it is told is tried at a sixteenth and a quarter of the way to the largest shape."""

Shape = Mapping[str, int]


def in_arena_of_shapes(
    planned: PlannedGraph, registry: OpRegistry, device: Device, options: ArenaOptions
) -> PlannedGraph:
    """A program with points inside an arena.

    Distinct operations are run alone, at two shapes, to learn which of them write where they are told.

    Args:
        planned: for all shapes.
        registry: what its operations mean.
        device: that it runs on.
        options: how the arena is made.

    Raises:
        UsageError: plans by shape, a program in parts beside it, room on the host, or results on operands.
        InfeasibleBudget: at the largest shape the arena and what is outside of it take more than the limit.
    """
    points = planned.points
    if points is None or planned.in_parts is not None:
        raise UsageError(
            f"{'plans by shape' if points is None else 'a program in parts'} and an arena exclude each other",
            why="layouts by shape are for one program with points at which it is decided what is evicted",
            next_step='leave the arena out, or strategy="by_shape" and numerics="close"',
        )
    graph, limit, shaped = planned.graph, points.budget_bytes, points.plan.shaped
    shape = {dim.name: dim.high or dim.low for dim in graph.dims}
    # What a layout takes beyond live bytes is known for a shape when it comes, so no eviction is left out beforehand.
    plan = point_plan(
        graph,
        EstimatedCost(device, registry),
        shaped.units.order,
        shape,
        least_budget_bytes=0,
        host=points.plan.host,
        bodies=shaped.bodies,
    )
    decisions = Decisions(plan)
    decision = decisions.at(shape, limit)
    instances = script_instances(plan.shaped, decision.script)
    results = arena_results(plan, registry, _outs(planned, registry), device, options, decision, instances)
    arena = ArenaOfShapes(plan, results, options, decision)
    found = arena.within(decisions, shape, limit)
    if found.peak_with_workspace_bytes > limit:
        raise InfeasibleBudget(
            f"the largest shapes do not stay within {format_bytes(limit)} in an arena: the lowest peak found is "
            f"{format_bytes(found.peak_with_workspace_bytes)}",
            smallest_peak_bytes=found.peak_with_workspace_bytes,
            lower_bound_bytes=found.resident_bytes,
            why=f"{format_bytes(found.arena_bytes)} are in the arena and {format_bytes(found.outside_peak_bytes)} "
            "outside of it, which need not be at one time",
            next_step="allow more, make the ranges smaller, or leave the arena out",
        )
    made = replace(planned, points=replace(points, plan=plan, arena=arena))
    if options.whole_range:
        arena.expected_bytes = max(one.arena_bytes for one in arena_on_the_way(made))
    return made


def _outs(planned: PlannedGraph, registry: OpRegistry) -> dict[int, OutFacts]:
    """Nodes that write where they are told in the same way at each of the shapes that are tried."""
    tried = [probe_outs(with_sizes(planned.graph, shape), registry) for shape in _tried(planned)]
    return {node: _agreed([facts[node] for facts in tried]) for node in tried[0]}


def _agreed(found: Sequence[OutFacts]) -> OutFacts:
    if all(facts.variant == found[0].variant for facts in found):
        return found[0]
    reason = next((facts.reason for facts in found if facts.variant is None), "")
    return OutFacts(None, reason=f"{reason or 'another overload is clean'} at some shape")


def _tried(planned: PlannedGraph) -> list[Shape]:
    whole = dict.fromkeys(chosen_dims(planned.graph), 1)
    way = [shape for shape in way_through(planned.graph) if planned.program.sizes.hold(shape)]
    return [{**way[(len(way) - 1) // part], **whole} for part in _PROBED]
