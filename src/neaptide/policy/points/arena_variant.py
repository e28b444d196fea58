"""Puts every program of a step inside an arena."""

from __future__ import annotations

from dataclasses import replace

from neaptide.errors import UsageError
from neaptide.ops import registry
from neaptide.plans import described_role
from neaptide.policy.points.arenas import in_arena_of_shapes
from neaptide.policy.prepared_step import PreparedStep
from neaptide.runtime.arena.out_probe import probe_outs
from neaptide.runtime.arena.plan import ArenaOptions
from neaptide.runtime.arena.planning import plan_arena
from neaptide.runtime.steps.planned_graph import PlannedVariant


def in_arenas(
    prepared: PreparedStep, variant: PlannedVariant, options: ArenaOptions | None = None
) -> PlannedVariant:
    """The same variant with every program inside an arena; one for all shapes has a layout for each.

    Distinct operations are run alone to learn which of them write where they are told.

    Raises:
        UsageError: the step is planned for another device, or on tensors without bytes; or as `in_arena_of_shapes`.
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
        role = "steady" if index == 0 else f"first_{index}"
        prepared.say(f"laying out {described_role(role)}")
        if planned.limit_bytes:
            graphs.append(in_arena_of_shapes(planned, registry(), prepared.device, chosen))
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
