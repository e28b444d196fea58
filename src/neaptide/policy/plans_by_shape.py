"""Searches for a few plans of a step, each made for one shape on the way to the largest of a range.

At small shapes program order fits. From there on more has to be recomputed the larger a call is. A plan made for one shape
serves all at which it keeps to the budget, so a few plans on a straight way through the range are enough: which of them a
call runs is decided by its exact shape (`ShapePlans`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from neaptide.analysis.shape_peaks import ShapePeaks
from neaptide.ask import Ask
from neaptide.budget import Budget
from neaptide.errors import InfeasibleBudget
from neaptide.frontends.programs.captured import CapturedProgram, CapturedStep
from neaptide.ir.graph import Graph
from neaptide.ir.schedule import Schedule
from neaptide.ir.with_sizes import with_sizes
from neaptide.outcome import Limits
from neaptide.policy.prepared_step import PreparedStep
from neaptide.runtime.shapes.limit_by_shape import way_through
from neaptide.runtime.shapes.plans import ShapePlan, ShapePlans
from neaptide.runtime.steps.planned_graph import PlannedGraph, PlannedVariant, StepPlan
from neaptide.units import format_bytes

_PLANS: Final = 4  # that are searched for; program order stands beside them

Shape = Mapping[str, int]
Prepare = Callable[[CapturedStep], PreparedStep]


def plan_shapes(captured: CapturedStep, prepare: Prepare, ask: Ask) -> StepPlan:
    """Plan every program of a step for every shape in its range: the plan of the largest, and what runs at all of them.

    The limits of the ask are those of all plans together. Its budget is in bytes, or a share of the peak at the largest
    shape. `prepare` makes a capture of one shape ready to be planned.
    """
    return _ShapePlanning(captured, prepare, ask).run()


class _ShapePlanning:
    def __init__(self, captured: CapturedStep, prepare: Prepare, ask: Ask) -> None:
        self.captured, self.prepare, self.ask = captured, prepare, ask
        self.way = way_through(captured.steady.graph)
        self.shape = self.way[-1]
        self.largest = prepare(_at(captured, self.shape))
        self.allowed = self.largest.allowed(ask, 0, None)

    def run(self) -> StepPlan:
        """All plans, that of the largest shape first: without it there is none."""
        shapes = self._shapes()
        limits = _part(self.ask.limits, len(shapes))
        ask = replace(self.ask, budget=Budget(self.allowed), limits=limits, in_place=False)
        top = self.largest.plan(ask)
        self._check(top)
        made = [(self.shape, top)]
        made += [
            (shape, self.prepare(_at(self.captured, shape)).plan(ask)) for shape in reversed(shapes[:-1])
        ]
        graphs = tuple(
            self._planned(index, program, [(shape, one.variant.graphs[index]) for shape, one in made])
            for index, program in enumerate(self.captured.programs)
        )
        return StepPlan(top.plan, PlannedVariant(self.captured, graphs, top.plan))

    def _shapes(self) -> list[Shape]:
        """Shapes to plan for, ascending: the largest, and some behind the last at which program order fits."""
        graph = self.captured.steady.graph
        peaks = self._peaks(0, graph, Schedule.program_order(graph))
        low, high = 0, len(self.way) - 1
        while low < high:  # the first shape at which it does not fit; sizes grow with dims
            middle = (low + high) // 2
            fits = peaks.peak_with_workspace_bytes(self.way[middle]) <= self.allowed
            low, high = (middle + 1, high) if fits else (low, middle)
        last = len(self.way) - 1
        chosen = sorted({low + (last - low) * number // _PLANS for number in range(1, _PLANS + 1)})
        return [self.way[number] for number in chosen]

    def _peaks(self, index: int, graph: Graph, schedule: Schedule) -> ShapePeaks:
        """The peaks of an order, with the scratch bytes that the largest shape takes."""
        return ShapePeaks(graph, schedule, self.shape, self._workspace(index))

    def _workspace(self, index: int) -> Mapping[int, int]:
        return self.largest.prices(self.largest.captured.programs[index].graph).own_workspace

    def _check(self, top: StepPlan) -> None:
        made = top.plan.programs[0].predictions
        peak = made.peak_with_workspace_bytes
        if peak > self.allowed:
            said = ", ".join(f"{dim} = {size}" for dim, size in sorted(self.shape.items()))
            raise InfeasibleBudget(
                f"no plan for {said} within {format_bytes(self.allowed)} was found",
                smallest_peak_bytes=peak,
                lower_bound_bytes=made.lower_bound_bytes,
                plan=top.plan,
                why=f"the lowest peak found for this, the largest shape is {format_bytes(peak)}",
                next_step="allow more bytes, or give dynamic= smaller ranges",
            )

    def _planned(
        self, index: int, program: CapturedProgram, made: Sequence[tuple[Shape, PlannedGraph]]
    ) -> PlannedGraph:
        """What runs for one program: its plans by time at the largest shape, program order among them."""
        graph = program.graph
        seconds = self.largest.prices(self.largest.captured.programs[index].graph).seconds
        schedules: dict[tuple[int, ...], ShapePlan] = {}
        candidates: list[tuple[Shape | None, Schedule]] = [(None, Schedule.program_order(graph))]
        candidates += [(shape, planned.schedule) for shape, planned in made]
        for shape, schedule in candidates:
            sequence = tuple(step.target for step in schedule.node_steps())
            if sequence not in schedules:
                longest = sum(seconds[node] for node in sequence)
                schedules[sequence] = ShapePlan(schedule, self._peaks(index, graph, schedule), longest, shape)
        plans = tuple(sorted(schedules.values(), key=lambda plan: plan.seconds))
        shapes = ShapePlans(self.allowed, plans, self._workspace(index))
        return replace(PlannedGraph.captured(program), by_shape=shapes)


def _at(captured: CapturedStep, shape: Shape) -> CapturedStep:
    """The capture of one shape; nodes, values and storages keep their ids."""

    def sized(program: CapturedProgram) -> CapturedProgram:
        return replace(program, graph=with_sizes(program.graph, shape))

    return replace(captured, steady=sized(captured.steady), first=tuple(map(sized, captured.first)))


def _part(limits: Limits, parts: int) -> Limits:
    time_s = None if limits.time_s is None else limits.time_s / parts
    work = None if limits.work is None else max(limits.work // parts, 1)
    return Limits(time_s, work, limits.seed)
