"""Plans a step whose programs decide at each call what is evicted: for ranges of shapes, for shapes that were seen, or for one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Final

from neaptide.ask import CLOSE, Ask, ByShape
from neaptide.budget import allowed_bytes
from neaptide.cost.devices import Device
from neaptide.cost.model import EstimatedCost
from neaptide.errors import InfeasibleBudget
from neaptide.frontends.programs.captured import CapturedProgram
from neaptide.ir.graph import Graph
from neaptide.ir.loops.maps import chosen_dims
from neaptide.ops import registry
from neaptide.outcome import Limits, Stopwatch
from neaptide.planner.objective import PlanningProblem
from neaptide.planner.offload.host import HostSpace
from neaptide.planner.points.choices.choice import Choice
from neaptide.planner.points.choices.decide import policy, script_rank
from neaptide.planner.points.orders import EARLY, early_order, orders_for_range
from neaptide.planner.points.plan import Decisions, point_plan
from neaptide.planner.points.regions import regions_in_parts
from neaptide.planner.points.shaped import ShapedProgram
from neaptide.planner.strategies import early_updates
from neaptide.policy.plans_by_shape import plan_shapes
from neaptide.policy.points.leaked_sizes import check_sizes
from neaptide.policy.prepared_step import PreparedStep
from neaptide.runtime.shapes.limit_by_shape import LimitByShape, PointsWithin, largest_shape, written_peak
from neaptide.runtime.steps.planned_graph import PlannedGraph, PlannedVariant
from neaptide.units import format_bytes

_MOST_REGIONS: Final = 6  # in parts that are looked at

Shape = Mapping[str, int]
_Rank = tuple[int, float, int]


def varies(prepared: PreparedStep) -> bool:
    """Whether sizes of a step are left to its calls."""
    return any(program.graph.dims for program in prepared.captured.programs)


def for_all_shapes(prepared: PreparedStep, ask: Ask) -> PlannedVariant:
    """Every program with points at which it decides, or with plans by shape. The limit holds for all shapes in the ranges.

    A share of the peak is of the largest shapes, in program order.

    Raises:
        UsageError: a range has no end.
        InfeasibleBudget: no way was found to keep the largest shapes within the limit.
        CaptureError: a program has a size of the example where it should have an expression.
    """
    _check_programs(prepared)
    if isinstance(ask.mode, ByShape):
        return plan_shapes(prepared, ask)
    graphs: list[PlannedGraph] = []
    for program in prepared.captured.programs:
        first = graphs[0].limit_bytes if graphs else None
        graphs.append(_planned(program, prepared, ask, first))
    return PlannedVariant(prepared.captured, tuple(graphs), slow=prepared.slow)


def for_seen_shapes(prepared: PreparedStep, ask: Ask, shapes: Sequence[Shape]) -> PlannedVariant:
    """Every program with points, for shapes that were seen, the largest last; no range needs an end that fits.

    A share of the peak is of the peak at the shape of a call, and at least the bytes of the first plan: as if each shape
    were planned by itself. A shape that does not stay within its limit is refused when it comes.

    Raises:
        InfeasibleBudget: no way was found to keep one of these within its limit.
        CaptureError: a program has a size of the example where it should have an expression.
    """
    _check_programs(prepared)
    maker = PointsMaker.of(prepared, ask)
    graphs: list[PlannedGraph] = []
    limit: LimitByShape | None = None
    for program in prepared.captured.programs:
        own = [{dim.name: shape[dim.name] for dim in program.graph.dims} for shape in shapes]
        in_order = maker.in_order(program.graph, own[-1])
        if limit is None or not ask.budget.is_share:  # a share is of the usual program
            peak = written_peak(program, in_order, own[-1])
            limit = LimitByShape(ask.budget, ask.least_bytes, peak)
        points = _points_at(maker, in_order, own, limit)
        graphs.append(replace(PlannedGraph.captured(program), points=points))
    return PlannedVariant(prepared.captured, tuple(graphs), slow=prepared.slow)


def evicting_variant(prepared: PreparedStep, ask: Ask, name: str) -> PlannedVariant:
    """Every program of a step for one shape in its own order, with points at which the policy of a name decides.

    Only updates run earlier where that is free: gradients that wait for them cannot be evicted.

    Raises:
        UsageError: no policy of that name.
        InfeasibleBudget: the policy does not keep a program within the limit.
    """
    decide, maker = policy(name), PointsMaker.of(prepared, ask)
    graphs: list[PlannedGraph] = []
    limit: int | None = None
    for index, program in enumerate(prepared.captured.programs):
        graph, problem = program.graph, prepared.problem(index)
        allowed = prepared.allowed(ask, index, limit)
        limit = allowed if limit is None else limit
        order = early_updates.solve(PlanningProblem(problem, 0), Limits()).require().sequence
        host = host_space(graph, prepared.device, ask.budget.host_bytes)
        plan = point_plan(graph, maker.cost, order, {}, least_budget_bytes=allowed, host=host, known=problem)
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


def planned_within(
    program: CapturedProgram, prepared: PreparedStep, ask: Ask, limit_bytes: int
) -> PlannedGraph:
    """A program with points under a limit; with `numerics="close"`, one with a region in parts may be beside it.

    Shapes that were not found to fit are decided as well, as low as was found: with a limit of no bytes, all of them.
    """
    graph, maker = program.graph, PointsMaker.of(prepared, ask)
    largest = largest_shape(graph)
    in_order = maker.in_order(graph, largest)

    def points_in_parts(made: PlannedGraph) -> PointsWithin:
        sample = {**largest, **dict.fromkeys(chosen_dims(made.graph), 1)}
        return maker.within(maker.in_order(made.graph, sample), sample, limit_bytes)

    planned = replace(PlannedGraph.captured(program), points=maker.within(in_order, largest, limit_bytes))
    name = graph.name or "the step"
    prepared.say(f"order of {name}: {planned.with_points[0].order_reason}")
    if ask.numerics == CLOSE and in_order.at(largest).peak_bytes > limit_bytes:
        planned, told = _with_parts(planned, _on_the_way(graph), points_in_parts)
        prepared.say(f"parts of {name}: {told}")
    return planned


@dataclass(frozen=True)
class PointsMaker:
    """Makes programs with points for a device, with room on the host, in orders that are searched for within limits."""

    device: Device
    limits: Limits = field(default_factory=Limits)
    host_bytes: int = 0
    interrupt: threading.Event | None = None

    @staticmethod
    def of(prepared: PreparedStep, ask: Ask) -> PointsMaker:
        """As it is asked for."""
        return PointsMaker(prepared.device, ask.limits, ask.budget.host_bytes, ask.interrupt)

    @property
    def cost(self) -> EstimatedCost:
        """What an execution takes."""
        return EstimatedCost(self.device, registry())

    def in_order(self, graph: Graph, sample: Shape) -> ShapedProgram:
        """A program in its own order."""
        return ShapedProgram(graph, self.cost, range(len(graph.nodes)), sample)

    def within(self, in_order: ShapedProgram, largest: Shape, limit_bytes: int) -> PointsWithin:
        """A program under a limit of storages and workspace, in the order that is best on the way to the largest shape."""
        orders = orders_for_range(in_order, self.limits, self.interrupt)
        made = [self.points(in_order.graph, one.sequence, one.reason, largest, limit_bytes) for one in orders]
        if len(made) == 1:
            return made[0]
        # A lower peak may need more seconds once something is evicted. Where both are as good, the last one counts.
        way = _on_the_way(in_order.graph)
        return min(reversed(made), key=lambda points: rank(points, way))

    def points(
        self,
        graph: Graph,
        sequence: Sequence[int],
        reason: str,
        sample: Shape,
        limit: int | LimitByShape,
    ) -> PointsWithin:
        """A program in an order, under one limit or that of each shape."""
        host = host_space(graph, self.device, self.host_bytes)
        by_shape = None if isinstance(limit, int) else limit
        least = limit if isinstance(limit, int) else limit.least_bytes
        plan = point_plan(graph, self.cost, sequence, sample, least_budget_bytes=least, host=host)
        return PointsWithin(plan, least, reason, limit=by_shape)


def rank(points: PointsWithin, shapes: Iterable[Shape]) -> tuple[int, float]:
    """How good points are at some shapes, less is better: the most bytes above the limit, then all seconds."""
    choice, ranks = Choice([points.plan]), []
    for shape in shapes:
        limit = points.budget_bytes if points.limit is None else points.limit.at(shape)
        made = choice.at(shape, limit)
        ranks.append(script_rank(made.script, made.sizes, limit, points.plan.host))
    return max(above for above, _ in ranks), sum(seconds for _, seconds in ranks)


def host_space(graph: Graph, device: Device, nbytes: int | None) -> HostSpace | None:
    """Where storages may wait that are evicted; None where nothing may."""
    return HostSpace.of(graph, device, nbytes) if nbytes else None


def _check_programs(prepared: PreparedStep) -> None:
    """Look for sizes of the example in the programs of a step whose dims may vary."""
    if (sizes := prepared.captured.sizes) is not None and not prepared.captured.has_no_example:
        for program in prepared.captured.programs:
            check_sizes(program, sizes.examples, registry())


def _planned(program: CapturedProgram, prepared: PreparedStep, ask: Ask, first: int | None) -> PlannedGraph:
    largest = largest_shape(program.graph)
    in_order = PointsMaker.of(prepared, ask).in_order(program.graph, largest)
    allowed = allowed_bytes(ask.budget, in_order.at(largest).peak_bytes, first, ask.least_bytes)
    planned = planned_within(program, prepared, ask, allowed)
    found = planned.choice().at(largest, allowed).script.peak_bytes
    if found > allowed:
        raise InfeasibleBudget(
            f"the largest shapes do not stay within {format_bytes(allowed)}: the lowest peak found is "
            f"{format_bytes(found)}",
            smallest_peak_bytes=found,
            lower_bound_bytes=in_order.problem.lower_bound_bytes,
            where=_described(largest),
            next_step="allow more, or make the ranges smaller",
        )
    return planned


def _points_at(
    maker: PointsMaker, in_order: ShapedProgram, shapes: Sequence[Shape], limit: LimitByShape
) -> PointsWithin:
    """Updates as early as is free, where all shapes fit and little is recomputed; else the order that recomputes for less."""
    graph, largest, watch = in_order.graph, shapes[-1], Stopwatch()
    points = maker.points(graph, early_order(in_order), EARLY, largest, limit)
    above, seconds = rank(points, shapes)
    if not above and not (seconds and maker.limits.pays(seconds / len(shapes), watch.seconds())):
        return points
    orders = orders_for_range(in_order, maker.limits, maker.interrupt)
    made = [maker.points(graph, one.sequence, one.reason, largest, limit) for one in orders]
    (above, _), points = min(((rank(one, shapes), one) for one in made), key=itemgetter(0))
    if above:
        raise InfeasibleBudget(
            f"no way was found to keep {_described(largest)} within {format_bytes(limit.at(largest))}",
            smallest_peak_bytes=Decisions(points.plan).of(largest, limit.at(largest)).script.peak_bytes,
            lower_bound_bytes=in_order.problem.lower_bound_bytes,
            next_step="allow more, or run smaller shapes",
        )
    return points


def _with_parts(
    planned: PlannedGraph, shapes: Sequence[Shape], points_of: Callable[[PlannedGraph], PointsWithin]
) -> tuple[PlannedGraph, str]:
    """A program with points, and beside it the best one with a region in parts, where that serves some shape better.

    Each call runs the better of both, so no shape is served worse than without. Programs are compared at some shapes: by
    the most bytes above the limit, then by seconds over all of them, then by their peaks. Told in words as well.
    """
    assert planned.points is not None
    limit = planned.limit_bytes

    def ranks(points: PointsWithin) -> list[_Rank]:
        choice = Choice([points.plan])
        return [choice.rank(shape, limit) for shape in shapes]

    alone = ranks(planned.points)
    best, least, told = None, _over_all(alone), "no region is better in parts"
    for region in regions_in_parts(planned.graph, registry(), planned.program.sizes.hold, _MOST_REGIONS):
        if planned.objection(region.edited) is not None:
            continue
        made = planned.rewritten(region.edited, region.rewrites)
        points = points_of(made)
        found = _over_all(map(min, alone, ranks(points)))
        if found < least:
            best, least = replace(made, points=points), found
            told = f"{region.told} in as many parts as a shape needs"
    return replace(planned, in_parts=best), told


def _over_all(ranks: Iterable[_Rank]) -> _Rank:
    above, seconds, peaks = zip(*ranks, strict=True)
    return max(above), sum(seconds), sum(peaks)


def _on_the_way(graph: Graph) -> list[dict[str, int]]:
    """Shapes at a quarter, a half, three quarters and the end of all ranges of the arguments."""
    chosen = chosen_dims(graph)
    ends = {dim.name: (dim.low, dim.high or dim.low) for dim in graph.dims if dim.name not in chosen}
    return [
        {dim: low + (high - low) * part // 4 for dim, (low, high) in ends.items()} for part in range(1, 5)
    ]


def _described(shape: Shape) -> str:
    return ", ".join(f"{dim} = {size}" for dim, size in shape.items())
