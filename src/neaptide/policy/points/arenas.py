"""Puts every program of a step inside an arena; that of a program with points is laid out by the shape of a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from neaptide.cost.devices import Device
from neaptide.cost.model import EstimatedCost
from neaptide.errors import InfeasibleBudget, UsageError
from neaptide.ir.edits.with_sizes import with_sizes
from neaptide.ir.loops.maps import chosen_dims
from neaptide.ir.registry import OpRegistry
from neaptide.ops import registry
from neaptide.planner.points.instances import script_instances
from neaptide.planner.points.plan import Decisions, point_plan
from neaptide.plans import described_role, role_of
from neaptide.policy.prepared_step import PreparedStep
from neaptide.runtime.arena.layout_by_shape import ArenaOfShapes
from neaptide.runtime.arena.out_probe import OutFacts, probe_outs
from neaptide.runtime.arena.plan import ArenaOptions
from neaptide.runtime.arena.planning import plan_arena
from neaptide.runtime.arena.results_by_shape import arena_results
from neaptide.runtime.shapes.limit_by_shape import way_through
from neaptide.runtime.steps.arena_report import arena_on_the_way
from neaptide.runtime.steps.planned_graph import PlannedGraph, PlannedVariant
from neaptide.units import format_bytes

_PROBED: Final = (16, 4)
"""What is written where it is told is tried at a sixteenth and a quarter of the way to the largest shape."""

Shape = Mapping[str, int]


def in_arenas(
    prepared: PreparedStep, variant: PlannedVariant, options: ArenaOptions | None = None
) -> PlannedVariant:
    """The same variant with every program inside an arena; one for all shapes has a layout for each.

    Distinct operations are run alone to learn which of them write where they are told.

    Raises:
        UsageError: the step is planned for another device, or on tensors without bytes.
        InfeasibleBudget: a program for all shapes does not stay within its limit in an arena.
    """
    if not prepared.is_measured:
        raise UsageError(
            "an arena is made for the machine that the step runs on",
            why="operations must be run to learn which of them write where they are told",
            next_step="plan without a preset, on a model with weights",
        )
    chosen = options or ArenaOptions()
    graphs = []
    for index, planned in enumerate(variant.graphs):
        prepared.say(f"laying out {described_role(role_of(index))}")
        if planned.limit_bytes:
            graphs.append(_by_shape(planned, registry(), prepared.device, chosen))
            continue
        graph = planned.graph
        sizes = prepared.pricing(graph).storage_bytes(graph)
        arena = plan_arena(
            graph,
            planned.schedule,
            registry(),
            prepared.prices(graph, planned.schedule.bodies),
            probe_outs(graph, registry()),
            prepared.device,
            chosen,
            saved_bytes=sum(sizes[s] for s in planned.saved),
        )
        graphs.append(replace(planned, arena=arena))
    return replace(variant, graphs=tuple(graphs))


def _by_shape(
    planned: PlannedGraph, registry: OpRegistry, device: Device, options: ArenaOptions
) -> PlannedGraph:
    """A program with points inside an arena. Distinct operations are run alone, at two shapes."""
    points = planned.points
    assert points is not None, "plans by shape are refused with the arena (`exclusions`), and so are parts"
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
    )
    decisions = Decisions(plan)
    decision = decisions.of(shape, limit)
    instances = script_instances(plan.shaped, decision.script)
    results = arena_results(plan, registry, _outs(planned, registry), device, options, decision, instances)
    arena = ArenaOfShapes(plan, results, options, decision)
    found = arena.within(decisions, shape, limit)
    if found.peak_with_workspace_bytes > limit:
        raise InfeasibleBudget(
            f"the largest shapes do not stay within {format_bytes(limit)} in an arena: the lowest peak found is "
            f"{format_bytes(found.peak_with_workspace_bytes)}",
            smallest_peak_bytes=found.peak_with_workspace_bytes,
            lower_bound_bytes=found.persistent_bytes,
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
    whole = dict.fromkeys(chosen_dims(planned.graph), 1)
    way = [shape for shape in way_through(planned.graph) if planned.program.sizes.hold(shape)]
    shapes = [{**way[(len(way) - 1) // part], **whole} for part in _PROBED]
    tried = [probe_outs(with_sizes(planned.graph, shape), registry) for shape in shapes]
    return {node: _agreed([facts[node] for facts in tried]) for node in tried[0]}


def _agreed(found: Sequence[OutFacts]) -> OutFacts:
    if all(facts.variant == found[0].variant for facts in found):
        return found[0]
    reason = next((facts.reason for facts in found if facts.variant is None), "")
    return OutFacts(None, reason=f"{reason or 'another overload is clean'} at some shape")
