"""A step that evicts while it runs."""

from __future__ import annotations

from dataclasses import replace

from neaptide.outcome import Limits
from neaptide.planner.objective import PlanningProblem
from neaptide.planner.strategies import early_updates
from neaptide.runtime.evicting import Eviction, EvictionOptions, check_eviction
from neaptide.runtime.planned_graph import PlannedGraph, PlannedVariant
from neaptide.runtime.prepared_step import PreparedStep
from neaptide.runtime.search_options import SearchOptions


def evicting_variant(
    prepared: PreparedStep, options: SearchOptions, eviction: EvictionOptions
) -> PlannedVariant:
    """Every program in its own order, evicting while it runs (`runtime.evicting`).

    Only updates run earlier where that is free: gradients that wait for them cannot be evicted. Each program is run
    on paper first, with the bytes and seconds that are known of it.

    Raises:
        InfeasibleBudget: nothing is left to evict at some step, or that was not found out within the time limit.
    """
    graphs = []
    limit: int | None = None
    for index, program in enumerate(prepared.captured.programs):
        step = prepared.problem(index)
        allowed = prepared.allowed(options, index, limit)
        early = early_updates.solve(PlanningProblem(step, 0), Limits()).require()
        decided = Eviction(step, early.sequence, allowed, eviction)
        check_eviction(decided, program.graph.name or "the step", options.limits.time_s)
        limit = allowed if limit is None else limit
        graphs.append(replace(PlannedGraph.captured(program), eviction=decided))
    return PlannedVariant(prepared.captured, tuple(graphs))
