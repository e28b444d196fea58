"""Plans a step for one shape without a search: programs with points, at which a policy evicts."""

from __future__ import annotations

from dataclasses import replace

from neaptide.ask import Ask
from neaptide.cost.model import EstimatedCost
from neaptide.errors import InfeasibleBudget
from neaptide.ops import registry
from neaptide.outcome import Limits
from neaptide.planner.objective import PlanningProblem
from neaptide.planner.offload.host import HostSpace
from neaptide.planner.points.decide import policy
from neaptide.planner.points.orders import EARLY
from neaptide.planner.points.plan import point_plan
from neaptide.planner.strategies import early_updates
from neaptide.policy.prepared_step import PreparedStep
from neaptide.runtime.steps.planned_graph import PlannedGraph, PlannedVariant, PointsWithin
from neaptide.units import format_bytes


def evicting_variant(prepared: PreparedStep, ask: Ask, name: str) -> PlannedVariant:
    """Every program in its own order, with points at which a policy decides.

    Only updates run earlier where that is free: gradients that wait for them cannot be evicted.

    Args:
        prepared: a step for one shape.
        ask: the limit in bytes.
        name: of the policy.

    Raises:
        UsageError: no policy of that name.
        InfeasibleBudget: the policy does not keep a program within the limit.
    """
    decide = policy(name)
    graphs: list[PlannedGraph] = []
    limit: int | None = None
    for index, program in enumerate(prepared.captured.programs):
        graph, problem = program.graph, prepared.problem(index)
        allowed = prepared.allowed(ask, index, limit)
        limit = allowed if limit is None else limit
        order = early_updates.solve(PlanningProblem(problem, 0), Limits()).require().sequence
        cost, host_bytes = EstimatedCost(prepared.device, registry()), ask.budget.host_bytes
        host = HostSpace.of(graph, prepared.device, host_bytes) if host_bytes else None
        plan = point_plan(graph, cost, order, {}, least_budget_bytes=allowed, host=host, known=problem)
        points = PointsWithin(plan, allowed, EARLY, policy=decide)
        planned = replace(PlannedGraph.captured(program), points=points)
        found = planned.choice().at({}, allowed).script.peak_bytes
        if found > allowed:
            raise InfeasibleBudget(
                f"evicting by {name} does not keep {graph.name or 'the step'} within {format_bytes(allowed)}; run with "
                f"eviction, it comes to a peak of {format_bytes(found)}",
                smallest_peak_bytes=found,
                lower_bound_bytes=problem.lower_bound_bytes,
                why="too little may be evicted, or what is made again takes too many bytes",
                next_step="allow more, or plan the step: a plan knows what comes",
            )
        graphs.append(planned)
    return PlannedVariant(prepared.captured, tuple(graphs), slow=prepared.slow)
