"""Plans a step for sizes that were found by watching calls: programs with points, within a limit that follows from the shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import itemgetter

from neaptide.ask import Ask
from neaptide.cost.model import EstimatedCost
from neaptide.errors import InfeasibleBudget
from neaptide.ops import registry
from neaptide.outcome import Stopwatch
from neaptide.planner.offload.host import HostSpace
from neaptide.planner.points.decide import script_rank
from neaptide.planner.points.orders import EARLY, early_order, orders_for_range
from neaptide.planner.points.plan import Decisions, point_plan
from neaptide.planner.points.shaped import ShapedProgram
from neaptide.policy.points.for_all_shapes import check_programs
from neaptide.policy.prepared_step import PreparedStep
from neaptide.runtime.shapes.limit_by_shape import LimitByShape, written_peak
from neaptide.runtime.steps.planned_graph import PlannedGraph, PlannedVariant, PointsWithin
from neaptide.units import format_bytes

Shape = Mapping[str, int]


def for_seen_shapes(prepared: PreparedStep, ask: Ask, shapes: Sequence[Shape]) -> PlannedVariant:
    """Every program with points at which it decides; no range needs an end that fits.

    A share of the peak is of the peak at the shape of a call, and at least the bytes of the first plan: as if each shape
    were planned by itself. A shape that does not stay within its limit is refused when it comes.

    Args:
        prepared: a step whose dims may vary.
        ask: the limit.
        shapes: that were seen, the largest last; the order is decided at that one.

    Raises:
        InfeasibleBudget: no way was found to keep one of these within its limit.
        CaptureError: a program has a size of the example where it should have an expression.
    """
    check_programs(prepared)
    graphs: list[PlannedGraph] = []
    limit: LimitByShape | None = None
    for program in prepared.captured.programs:
        own = [{dim.name: shape[dim.name] for dim in program.graph.dims} for shape in shapes]
        graph, cost = program.graph, EstimatedCost(prepared.device, registry())
        in_order = ShapedProgram(graph, cost, range(len(graph.nodes)), own[-1])
        if limit is None or not ask.budget.is_share:  # a share is of the usual program
            peak = written_peak(program, in_order, own[-1])
            limit = LimitByShape(ask.budget, ask.least_bytes, peak)
        points = _points(in_order, prepared, ask, own, limit)
        graphs.append(replace(PlannedGraph.captured(program), points=points))
    return PlannedVariant(prepared.captured, tuple(graphs), slow=prepared.slow)


def _points(
    in_order: ShapedProgram,
    prepared: PreparedStep,
    ask: Ask,
    shapes: Sequence[Shape],
    limit: LimitByShape,
) -> PointsWithin:
    """Updates as early as is free, where all shapes fit and little is recomputed; else the order that recomputes for less."""
    graph = in_order.graph
    cost = EstimatedCost(prepared.device, registry())
    host_bytes = ask.budget.host_bytes
    host = HostSpace.of(graph, prepared.device, host_bytes) if host_bytes else None

    def tried(sequence: Sequence[int], reason: str) -> tuple[tuple[int, float], PointsWithin]:
        plan = point_plan(graph, cost, sequence, shapes[-1], least_budget_bytes=limit.least_bytes, host=host)
        decisions = Decisions(plan)
        found = [(decisions.at(shape, limit.at(shape)), limit.at(shape)) for shape in shapes]
        ranks = [script_rank(made.script, made.sizes, allowed, host) for made, allowed in found]
        rank = max(above for above, _ in ranks), sum(seconds for _, seconds in ranks)
        return rank, PointsWithin(plan, limit.least_bytes, reason, limit=limit)

    watch = Stopwatch()
    rank, points = tried(early_order(in_order), EARLY)
    if not rank[0] and not (rank[1] and ask.limits.pays(rank[1] / len(shapes), watch.seconds())):
        return points
    orders = orders_for_range(in_order, ask.limits, ask.interrupt)
    rank, points = min((tried(order.sequence, order.reason) for order in orders), key=itemgetter(0))
    if rank[0]:
        lowest = Decisions(points.plan).at(shapes[-1], limit.at(shapes[-1])).script.peak_bytes
        raise InfeasibleBudget(
            f"no way was found to keep {', '.join(f'{dim} = {size}' for dim, size in shapes[-1].items())} within "
            f"{format_bytes(limit.at(shapes[-1]))}",
            smallest_peak_bytes=lowest,
            lower_bound_bytes=in_order.problem.lower_bound_bytes,
            next_step="allow more, or run smaller shapes",
        )
    return points
