"""The limit of a program for seen shapes, where a budget is a share of what the shape takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from neaptide.analysis.shape_peaks import ShapePeaks
from neaptide.budget import Budget
from neaptide.frontends.programs.captured import CapturedProgram
from neaptide.ir.schedule import Schedule
from neaptide.ops import registry
from neaptide.planner.points.shaped import ShapedProgram
from neaptide.schedule.checkpointed import checkpointed_sequence

_REMEMBERED: Final = 1024  # shapes

Shape = Mapping[str, int]


class LimitByShape:
    """The bytes that a program stays within at each shape.

    Args:
        budget: of the step: bytes, or a share of what eager takes at the shape.
        least_bytes: allowed at every shape.
    """

    def __init__(self, budget: Budget, least_bytes: int, peak_bytes: Callable[[Shape], int]) -> None:
        self._budget, self._peak_bytes = budget, peak_bytes
        self.least_bytes = least_bytes
        self.is_one = not (budget.is_share or budget.peak is None)
        if self.is_one:
            self.least_bytes = max(budget.limit(0), least_bytes)
        self._known: dict[tuple[tuple[str, int], ...], int] = {}

    def at(self, shape: Shape) -> int:
        """Highest peak with workspace at a shape. One look-up for a shape that was seen."""
        if self.is_one:
            return self.least_bytes
        key = tuple(sorted(shape.items()))
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            asked = self._budget.limit(self._peak_bytes(shape))
            found = self._known[key] = max(asked, self.least_bytes)
        return found


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
