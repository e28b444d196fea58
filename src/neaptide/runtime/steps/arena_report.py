"""Numbers of the arena of a program with points, at one shape and over the range."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from neaptide.cost.devices import Device
from neaptide.cost.model import EstimatedCost
from neaptide.cost.of_shapes import CostOfShapes
from neaptide.layout.caching_allocator import caching_allocator_reserved
from neaptide.layout.problem import ANYWHERE
from neaptide.ops import registry
from neaptide.planner.points.instances import FIRST
from neaptide.planner.points.plan import Decision
from neaptide.planner.points.script import ScriptWriter
from neaptide.planner.points.shaped import ShapedProgram
from neaptide.runtime.arena.fit import slots_of
from neaptide.runtime.arena.layout_by_shape import (
    ArenaAtShape,
    ArenaOfShapes,
    instance_problem,
)
from neaptide.runtime.arena.plan import ArenaOnTheWay, ArenaReport, OutsideStorage
from neaptide.runtime.arena.results_by_shape import run_seconds, run_spans
from neaptide.runtime.shapes.limit_by_shape import way_through
from neaptide.runtime.steps.planned_graph import PlannedGraph

_SHAPES: Final = 9  # of the range that are told


def arena_on_the_way(planned: PlannedGraph) -> tuple[ArenaOnTheWay, ...]:
    """The arena at up to nine shapes from the smallest to the largest; nothing for a program in none. O(layouts)."""
    points = planned.points
    if points is None or points.arena is None:
        return ()
    way = [shape for shape in way_through(planned.graph) if planned.program.sizes.hold(shape)]
    count = min(_SHAPES, len(way))
    chosen = [way[(len(way) - 1) * number // max(count - 1, 1)] for number in range(count)]
    (decisions,) = planned.choice().decisions
    found = []
    for shape in chosen:
        made = points.arena.within(decisions, shape, points.budget_bytes)
        found.append(
            ArenaOnTheWay(
                dict(shape),
                made.arena_bytes,
                made.live_bytes,
                made.outside_peak_bytes,
                made.peak_with_workspace_bytes,
                decisions.of(shape, points.budget_bytes).script.peak_bytes,
            )
        )
    return tuple(found)


def arena_report(arena: ArenaOfShapes, made: ArenaAtShape) -> ArenaReport:
    """Numbers of the arena of a shape, in a block of just its bytes. O(instances), and a simulation of the allocator."""
    instances, decision = made.instances, made.decision
    spans = run_spans(instances, decision)
    is_inside = made.offsets != ANYWHERE
    is_copied = is_inside & arena.results.copied(instances)
    nbytes = spans.nbytes
    own = np.flatnonzero((nbytes > 0) & ~instances.is_handed_back)
    return ArenaReport(
        arena_bytes=made.arena_bytes,
        live_bytes=made.live_bytes,
        certificate=made.certificate,
        written=int((is_inside & ~is_copied).sum()),
        copied=int(is_copied.sum()),
        copied_bytes=int(nbytes[is_copied].sum()),
        copy_seconds=spans.copy_seconds(is_copied, arena.results.device),
        step_seconds=run_seconds(decision),
        outside=tuple(_outside(arena, made, n) for n in np.flatnonzero(~is_inside & (nbytes > 0)).tolist()),
        outside_peak_bytes=made.outside_peak_bytes,
        persistent_bytes=made.persistent_bytes,
        peak_bytes=made.peak_bytes,
        peak_with_workspace_bytes=made.peak_with_workspace_bytes,
        plain_peak_bytes=storages_alone(arena.plan.shaped, made.shape, decision),
        predicted_reserved_bytes=caching_allocator_reserved(instance_problem(instances, nbytes, own)),
    )


def _outside(arena: ArenaOfShapes, made: ArenaAtShape, number: int) -> OutsideStorage:
    instances, graph = made.instances, arena.plan.shaped.graph
    start, storage = int(instances.starts[number]), int(instances.storages[number])
    node = graph.nodes[int(instances.nodes[start])]
    results = arena.results.first if instances.runs[start] == FIRST else arena.results.again
    value = graph.values[node.outputs[slots_of(graph, node, storage)[0]]]
    nbytes = made.decision.sizes.storage_bytes[storage]
    end = int(instances.ends[number])
    return OutsideStorage(node.op, value.name, nbytes, start, end, results.reasons[storage])


def predicted_at(planned: PlannedGraph, shape: Mapping[str, int]) -> tuple[int, int]:
    """Predicted peak bytes of storages, and with workspace, of a program for all shapes at one of them.

    In an arena, those with a block of just the bytes of this shape.
    """
    if planned.by_shape is not None:
        peaks = planned.by_shape.at(shape).peaks
        return peaks.peak_bytes(shape), peaks.peak_with_workspace_bytes(shape)
    choice, limit = planned.choice(), planned.limit_bytes
    number, sizes = choice.chosen(shape, limit)
    decisions = choice.decisions[number]
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
        return sum(float(seconds[node]) for node in planned.by_shape.at(shape).sequence)
    return planned.choice().rank(shape, planned.limit_bytes)[1]
