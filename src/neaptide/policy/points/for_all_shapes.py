"""Plans a step for the ranges that were asked for: programs with points, within one limit at all shapes."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from operator import itemgetter

from neaptide.ask import CLOSE, Ask, ByShape
from neaptide.budget import allowed_bytes
from neaptide.cost.devices import Device
from neaptide.cost.model import EstimatedCost
from neaptide.errors import InfeasibleBudget, UsageError
from neaptide.frontends.programs.captured import CapturedProgram, CapturedStep
from neaptide.ir.graph import Graph
from neaptide.ir.loop_maps import chosen_dims
from neaptide.ops import registry
from neaptide.outcome import Limits
from neaptide.planner.offload.host import HostSpace
from neaptide.planner.points.decide import script_rank
from neaptide.planner.points.orders import OrderForRange, orders_for_range
from neaptide.planner.points.plan import Decisions, point_plan
from neaptide.planner.points.shaped import ShapedProgram
from neaptide.policy.plans_by_shape import plan_shapes
from neaptide.policy.points.in_parts import with_parts
from neaptide.policy.points.leaked_sizes import check_sizes
from neaptide.policy.prepared_step import PreparedStep
from neaptide.runtime.steps.planned_graph import PlannedGraph, PlannedVariant, PointsWithin
from neaptide.units import format_bytes


def varies(prepared: PreparedStep) -> bool:
    """Whether sizes of a step are left to its calls."""
    return any(program.graph.dims for program in prepared.captured.programs)


def check_programs(prepared: PreparedStep) -> None:
    """Look for sizes of the example in the programs of a step whose dims may vary.

    Raises:
        CaptureError: a program has one where it should have an expression.
    """
    if (sizes := prepared.captured.sizes) is not None and not prepared.captured.has_no_example:
        for program in prepared.captured.programs:
            check_sizes(program, sizes.examples, registry())


def for_all_shapes(prepared: PreparedStep, ask: Ask) -> PlannedVariant:
    """Every program with points at which it decides, or with plans by shape. The limit holds for all shapes in the ranges.

    A share of the peak is of the largest shapes, in program order. What order a program has is decided by
    `planner.points.orders`; of two, the one that recomputes for fewer seconds at shapes on the way to the largest is taken.

    Args:
        prepared: a step whose dims may vary.
        ask: the limit, and whether plans by shape are made.

    Raises:
        UsageError: a range has no end.
        InfeasibleBudget: no way was found to keep the largest shapes within the limit.
        CaptureError: a program has a size of the example where it should have an expression.
    """
    check_programs(prepared)
    if isinstance(ask.mode, ByShape):

        def again(captured: CapturedStep) -> PreparedStep:
            may_vary = prepared.registry.bits_may_vary
            return PreparedStep(captured, bits_may_vary=may_vary, slow=prepared.slow)

        return plan_shapes(prepared.captured, again, ask).variant
    graphs = []
    limit: int | None = None
    for program in prepared.captured.programs:
        planned = _planned(program, prepared, ask, limit)
        limit = planned.limit_bytes if limit is None else limit
        graphs.append(planned)
    return PlannedVariant(prepared.captured, tuple(graphs), slow=prepared.slow)


def points_within(
    in_order: ShapedProgram,
    cost: EstimatedCost,
    device: Device,
    largest: Mapping[str, int],
    limit_bytes: int,
    limits: Limits,
    *,
    host_bytes: int | None = None,
    interrupt: threading.Event | None = None,
) -> PointsWithin:
    """A program with points under a limit, in the order that is best on the way to the largest shape.

    Args:
        in_order: the program in its own order, its sample the largest shape.
        cost: of its nodes.
        device: that it runs on.
        largest: the largest shape.
        limit_bytes: of storages and workspace, with what the caller owns.
        limits: of the search for an order.
        host_bytes: that may wait on the host; None where nothing may.
        interrupt: ends it.
    """
    graph = in_order.graph
    host = HostSpace.of(graph, device, host_bytes) if host_bytes else None

    def planned(order: OrderForRange) -> PointsWithin:
        plan = point_plan(graph, cost, order.sequence, largest, least_budget_bytes=limit_bytes, host=host)
        return PointsWithin(plan, limit_bytes, order.reason)

    def decided(order: OrderForRange) -> tuple[tuple[int, float], PointsWithin]:
        points = planned(order)
        decisions = Decisions(points.plan)
        found = [decisions.at(shape, limit_bytes) for shape in _on_the_way(graph)]
        ranks = [script_rank(d.script, d.sizes, limit_bytes, host) for d in found]
        rank = max(above for above, _ in ranks), sum(seconds for _, seconds in ranks)
        return rank, points

    orders = orders_for_range(in_order, limits, interrupt)
    if len(orders) == 1:
        return planned(orders[0])
    # A lower peak may need more seconds once something is evicted. Where both are as good, the last one counts.
    return min(map(decided, reversed(orders)), key=itemgetter(0))[1]


def _planned(program: CapturedProgram, prepared: PreparedStep, ask: Ask, first: int | None) -> PlannedGraph:
    graph = program.graph
    cost = EstimatedCost(prepared.device, registry())
    largest = _largest(graph)
    shaped = ShapedProgram(graph, cost, range(len(graph.nodes)), largest)
    peak = shaped.at(largest).peak_bytes
    allowed = allowed_bytes(ask.budget, peak, first, ask.least_bytes)
    planned = planned_within(program, prepared, ask, allowed)
    found = planned.choice().at(largest, allowed).script.peak_bytes
    if found > allowed:
        raise InfeasibleBudget(
            f"the largest shapes do not stay within {format_bytes(allowed)}: the lowest peak found is "
            f"{format_bytes(found)}",
            smallest_peak_bytes=found,
            lower_bound_bytes=shaped.problem.lower_bound_bytes,
            where=", ".join(f"{dim} = {size}" for dim, size in largest.items()),
            next_step="allow more, or make the ranges smaller",
        )
    return planned


def planned_within(
    program: CapturedProgram, prepared: PreparedStep, ask: Ask, limit_bytes: int
) -> PlannedGraph:
    """A program with points under a limit; with `numerics="close"`, one with a region in parts may be beside it.

    Shapes that were not found to fit are decided as well, as low as was found: with a limit of no bytes, all of them.

    Args:
        program: whose dims vary.
        prepared: the step that it is of.
        ask: of the searches.
        limit_bytes: of storages and workspace, with what the caller owns.

    Raises:
        UsageError: a range has no end.
    """
    graph = program.graph
    cost = EstimatedCost(prepared.device, registry())
    largest = _largest(graph)
    shaped = ShapedProgram(graph, cost, range(len(graph.nodes)), largest)

    def points_of(shaped: ShapedProgram, sample: Mapping[str, int]) -> PointsWithin:
        return points_within(
            shaped,
            cost,
            prepared.device,
            sample,
            limit_bytes,
            ask.limits,
            host_bytes=ask.budget.host_bytes,
            interrupt=ask.interrupt,
        )

    def points_in_parts(made: PlannedGraph) -> PointsWithin:
        sample = {**largest, **dict.fromkeys(chosen_dims(made.graph), 1)}
        nodes = range(len(made.graph.nodes))
        return points_of(ShapedProgram(made.graph, cost, nodes, sample), sample)

    planned = replace(PlannedGraph.captured(program), points=points_of(shaped, largest))
    name = graph.name or "the step"
    prepared.say(f"order of {name}: {planned.with_points[0].order_reason}")
    if ask.numerics == CLOSE and shaped.at(largest).peak_bytes > limit_bytes:
        planned, told = with_parts(planned, registry(), _on_the_way(graph), points_in_parts)
        prepared.say(f"parts of {name}: {told}")
    return planned


def _largest(graph: Graph) -> dict[str, int]:
    open_ended = [dim.name for dim in graph.dims if dim.high is None]
    if open_ended:
        raise UsageError(
            f"the range of {open_ended[0]} has no end",
            why="a limit must hold for the largest shapes",
            next_step="give dynamic= a largest size",
        )
    return {dim.name: dim.high for dim in graph.dims if dim.high is not None}


def _on_the_way(graph: Graph) -> list[dict[str, int]]:
    """Shapes at a quarter, a half, three quarters and the end of all ranges of the arguments."""
    chosen = chosen_dims(graph)
    ends = {dim.name: (dim.low, dim.high or dim.low) for dim in graph.dims if dim.name not in chosen}
    return [
        {dim: low + (high - low) * part // 4 for dim, (low, high) in ends.items()} for part in range(1, 5)
    ]
