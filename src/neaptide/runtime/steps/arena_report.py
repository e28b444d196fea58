"""Numbers of the arena of a program with points, at one shape and over the range."""

from __future__ import annotations

from typing import Final

import numpy as np

from neaptide.layout.pools.caching_allocator import caching_allocator_reserved
from neaptide.layout.problem import ANYWHERE
from neaptide.planner.points.instances import FIRST
from neaptide.runtime.arena.copies import Span, copy_seconds
from neaptide.runtime.arena.fit import slots_of
from neaptide.runtime.arena.layout_by_shape import (
    ArenaAtShape,
    ArenaOfShapes,
    instance_bytes,
    instance_problem,
)
from neaptide.runtime.arena.plan import ArenaOnTheWay, ArenaReport, OutsideStorage
from neaptide.runtime.arena.results_by_shape import run_seconds
from neaptide.runtime.calls.way_through import way_through
from neaptide.runtime.steps.planned_graph import PlannedGraph
from neaptide.runtime.steps.predictions import storages_alone

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
    nbytes = instance_bytes(instances, decision)
    is_inside = made.offsets != ANYWHERE
    is_copied = is_inside & arena.results.copied(instances)
    spans = [Span(0, 1, size) for size in nbytes[is_copied].tolist()]
    own = np.flatnonzero((nbytes > 0) & ~instances.is_handed_back)
    return ArenaReport(
        arena_bytes=made.arena_bytes,
        live_bytes=made.live_bytes,
        certificate=made.certificate,
        written=int((is_inside & ~is_copied).sum()),
        copied=len(spans),
        copied_bytes=sum(span.nbytes for span in spans),
        copy_seconds=copy_seconds(spans, arena.results.device),
        step_seconds=run_seconds(decision),
        outside=tuple(_outside(arena, made, n) for n in np.flatnonzero(~is_inside & (nbytes > 0)).tolist()),
        outside_peak_bytes=made.outside_peak_bytes,
        resident_bytes=made.resident_bytes,
        peak_bytes=made.peak_bytes,
        peak_with_workspace_bytes=made.peak_with_workspace_bytes,
        plain_peak_bytes=storages_alone(arena.plan.shaped, made.shape, decision),
        predicted_reserved_bytes=caching_allocator_reserved(instance_problem(instances, nbytes, own)),
        plan_seconds=made.seconds,
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
