"""The limit of a program for seen shapes, where a budget is a share of what the shape takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from neaptide.analysis.shape_peaks import ShapePeaks
from neaptide.budget import Budget
from neaptide.errors import SymbolicError, UsageError
from neaptide.frontends.programs.captured import CapturedProgram
from neaptide.ir.graph import Graph
from neaptide.ir.schedule import Schedule
from neaptide.ops import registry
from neaptide.planner.points.choices.decide import Policy, least_cost_cover
from neaptide.planner.points.plan import PointPlan
from neaptide.planner.points.shaped import ShapedProgram
from neaptide.runtime.arena.layout_by_shape import ArenaOfShapes
from neaptide.schedule.checkpointed import checkpointed_sequence
from neaptide.symbolic.relations import SizeRelations

_REMEMBERED: Final = 1024  # shapes

Shape = Mapping[str, int]


class LimitByShape:
    """The bytes that a program stays within at each shape: those of a budget, or its share of what eager takes there.

    So many bytes as the least ones are allowed at every shape.
    """

    def __init__(self, budget: Budget, least_bytes: int, peak_bytes: Callable[[Shape], int]) -> None:
        self.least_bytes = least_bytes
        self.is_one = not (budget.is_share or budget.peak is None)
        if self.is_one:
            self.least_bytes = max(budget.limit(0), least_bytes)
        self._at = lru_cache(_REMEMBERED)(lambda shape: budget.limit(peak_bytes(dict(shape))))

    def at(self, shape: Shape) -> int:
        """Highest peak with workspace at a shape. One look-up for a shape that was seen."""
        if self.is_one:
            return self.least_bytes
        return max(self._at(tuple(sorted(shape.items()))), self.least_bytes)


def written_peak(program: CapturedProgram, in_order: ShapedProgram, shape: Shape) -> Callable[[Shape], int]:
    """The predicted peak of a program as eager runs it, with the user's own activation checkpointing, at each shape."""

    def plain(shape: Shape) -> int:
        return in_order.at(shape).peak_bytes

    if not program.checkpoints:
        return plain
    graph = program.graph
    sequence = checkpointed_sequence(graph, in_order.problem, registry(), program.checkpoints)
    workspace = dict(enumerate(in_order.at(shape).workspace))
    peaks = ShapePeaks(graph, Schedule.from_nodes(graph, sequence), shape, workspace)
    return lambda shape: min(plain(shape), peaks.peak_with_workspace_bytes(shape))


@dataclass(frozen=True)
class PointsWithin:
    """Points at which a program decides what is evicted, and the bytes that it stays within."""

    plan: PointPlan
    budget_bytes: int
    order_reason: str = "program order"
    arena: ArenaOfShapes | None = None
    limit: LimitByShape | None = None  # bytes by shape, at least `budget_bytes`; None for one limit
    policy: Policy = least_cost_cover


_STEPS: Final = 64  # in which the way is looked at


def largest_shape(graph: Graph) -> dict[str, int]:
    """The largest shape in the range of a graph."""
    if without := [dim.name for dim in graph.dims if dim.high is None]:
        raise UsageError(
            f"the range of {without[0]} has no end",
            why="a limit must hold for the largest shapes",
            next_step="give dynamic= a largest size, such as (16, 4096)",
        )
    return {dim.name: dim.high for dim in graph.dims if dim.high is not None}


def way_through(graph: Graph) -> list[Mapping[str, int]]:
    """A straight way through the range of a graph, from its smallest shape to its largest, of shapes that keep all relations."""
    largest = largest_shape(graph)
    store = SizeRelations(graph.dims, graph.relations)
    found: list[Mapping[str, int]] = []
    for step in range(_STEPS + 1):
        shape = {dim.name: dim.low + (largest[dim.name] - dim.low) * step // _STEPS for dim in graph.dims}
        try:
            known = store.binding(shape)
        except SymbolicError:
            continue  # it breaks a relation, as one that sizes are even
        if known not in found:
            found.append(known)
    if not found:
        raise UsageError("no shape in the range keeps the relations between its dims")
    return found
