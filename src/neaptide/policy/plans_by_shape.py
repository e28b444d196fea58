"""Searches for a few plans of a step, each made for one shape on the way to the largest of a range.

At small shapes program order fits. From there on more has to be recomputed the larger a call is. A plan made for one shape
serves all at which it keeps to the budget, so a few plans on a straight way through the range are enough: which of them a
call runs is decided by its exact shape (`ShapePlans`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from neaptide.analysis.shape_peaks import ShapePeaks
from neaptide.ask import Ask
from neaptide.budget import Budget
from neaptide.errors import InfeasibleBudget
from neaptide.frontends.programs.captured import CapturedProgram, CapturedStep
from neaptide.ir.edits.with_sizes import with_sizes
from neaptide.ir.schedule import Schedule
from neaptide.outcome import Limits
from neaptide.planner.prices import Prices
from neaptide.policy.prepared_step import PreparedStep
from neaptide.runtime.shapes.limit_by_shape import way_through
from neaptide.runtime.shapes.plans import ShapePlan, ShapePlans
from neaptide.runtime.steps.planned_graph import PlannedGraph, PlannedVariant
from neaptide.units import format_bytes

_PLANS: Final = 4  # that are searched for; program order stands beside them

Shape = Mapping[str, int]


def plan_shapes(prepared: PreparedStep, ask: Ask) -> PlannedVariant:
    """Plan every program of a step for every shape in its range. The limits of the ask are those of all plans together.

    Raises:
        UsageError: a dim has no upper end, or no shape keeps all relations.
        InfeasibleBudget: no plan keeps the largest shape within the budget.
    """
    captured = prepared.captured
    way = way_through(captured.steady.graph)
    largest = prepared.like(_at(captured, way[-1]))
    allowed = largest.allowed(ask, 0, None)
    prices = [largest.prices(program.graph) for program in largest.captured.programs]
    shapes = _shapes(way, captured.steady, prices[0], allowed)
    ask = replace(ask, budget=Budget(allowed), limits=_part(ask.limits, len(shapes)), in_place=False)
    made: dict[tuple[tuple[str, int], ...], tuple[PlannedGraph, ...]] = {}
    for shape in reversed(shapes):  # the largest first: without its plan there is none
        found = (prepared.like(_at(captured, shape)) if made else largest).plan(ask)
        predicted = found.plan.programs[0].predictions
        if not made and predicted.peak_with_workspace_bytes > allowed:
            said = ", ".join(f"{dim} = {size}" for dim, size in sorted(shape.items()))
            peak = predicted.peak_with_workspace_bytes
            raise InfeasibleBudget(
                f"no plan for {said} within {format_bytes(allowed)} was found",
                smallest_peak_bytes=peak,
                lower_bound_bytes=predicted.lower_bound_bytes,
                plan=found.plan,
                why=f"the lowest peak found for this, the largest shape is {format_bytes(peak)}",
                next_step="allow more bytes, or give dynamic= smaller ranges",
            )
        made[tuple(shape.items())] = found.variant.graphs
    graphs = []
    for index, (program, priced) in enumerate(zip(captured.programs, prices, strict=True)):
        orders = [(dict(shape), planned[index].schedule) for shape, planned in made.items()]
        graphs.append(_planned(program, priced, allowed, way[-1], orders))
    return PlannedVariant(captured, tuple(graphs), slow=prepared.slow)


def _shapes(way: Sequence[Shape], program: CapturedProgram, prices: Prices, allowed: int) -> list[Shape]:
    """Shapes to plan for, ascending: the largest, and some beyond the last at which program order fits."""
    peaks = _peaks(program, Schedule.program_order(program.graph), prices, way[-1])
    last = len(way) - 1
    # The first shape at which it does not fit: sizes grow with dims.
    low = bisect_left(way, allowed + 1, hi=last, key=peaks.peak_with_workspace_bytes)
    return [way[n] for n in sorted({low + (last - low) * part // _PLANS for part in range(1, _PLANS + 1)})]


def _planned(
    program: CapturedProgram,
    prices: Prices,
    allowed: int,
    largest: Shape,
    orders: Sequence[tuple[Shape, Schedule]],
) -> PlannedGraph:
    """What runs for one program: its plans by time at the largest shape, program order among them."""
    found: dict[tuple[int, ...], ShapePlan] = {}
    own: tuple[Shape | None, Schedule] = (None, Schedule.program_order(program.graph))
    for shape, schedule in (own, *orders):
        peaks = _peaks(program, schedule, prices, largest)
        seconds = sum(prices.seconds[step.target] for step in schedule.node_steps())
        plan = ShapePlan(schedule, peaks, seconds, shape)
        found.setdefault(plan.sequence, plan)
    plans = tuple(sorted(found.values(), key=lambda plan: plan.seconds))
    return replace(PlannedGraph.captured(program), by_shape=ShapePlans(allowed, plans, prices.own_workspace))


def _peaks(program: CapturedProgram, order: Schedule, prices: Prices, largest: Shape) -> ShapePeaks:
    """The peaks of an order, with the scratch bytes that the largest shape takes."""
    return ShapePeaks(program.graph, order, largest, prices.own_workspace)


def _at(captured: CapturedStep, shape: Shape) -> CapturedStep:
    """The capture of one shape; nodes, values and storages keep their ids."""

    def sized(program: CapturedProgram) -> CapturedProgram:
        return replace(program, graph=with_sizes(program.graph, shape))

    return replace(captured, steady=sized(captured.steady), first=tuple(map(sized, captured.first)))


def _part(limits: Limits, parts: int) -> Limits:
    time_s = None if limits.time_s is None else limits.time_s / parts
    work = None if limits.work is None else max(limits.work // parts, 1)
    return Limits(time_s, work, limits.seed)
