"""The plans of one program: a call runs the fastest that keeps to the budget at its shape, lowered when first needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from neaptide.analysis.shape_peaks import ShapePeaks
from neaptide.errors import InfeasibleBudget
from neaptide.ir.graph import Graph
from neaptide.ir.schedule import Schedule
from neaptide.lower.torch_code import Watch, lower
from neaptide.ops import registry
from neaptide.runtime.calls.executor import Compiled, Executable
from neaptide.units import format_bytes

_SHAPES_REMEMBERED: Final = 4096


@dataclass(frozen=True, slots=True)
class ShapePlan:
    """One order of a program, with repetitions or without."""

    schedule: Schedule
    peaks: ShapePeaks
    seconds: float
    planned_at: Mapping[str, int] | None = None  # the shape that it was searched for; None for program order

    @property
    def sequence(self) -> tuple[int, ...]:
        """Nodes in running order."""
        return tuple(step.target for step in self.schedule.node_steps())


class ShapePlans:
    """Plans of one program, the fastest first; the last keeps to the budget at the largest shape.

    `workspace` are the scratch bytes by node id that their peaks count at every shape.
    """

    def __init__(
        self, budget_bytes: int, plans: tuple[ShapePlan, ...], workspace: Mapping[int, int] | None = None
    ) -> None:
        self.budget_bytes, self.plans, self.workspace = budget_bytes, plans, workspace or {}
        self._chosen = lru_cache(_SHAPES_REMEMBERED)(lambda shape: self._fastest(dict(shape)))

    def choose(self, shape: Mapping[str, int]) -> int:
        """Position of the fastest plan within the budget at a shape. O(1) for a shape that was met."""
        return self._chosen(tuple(shape.items()))

    def at(self, shape: Mapping[str, int]) -> ShapePlan:
        """The fastest plan within the budget at a shape."""
        return self.plans[self.choose(shape)]

    def _fastest(self, shape: Mapping[str, int]) -> int:
        peaks = []
        for number, plan in enumerate(self.plans):
            peaks.append(plan.peaks.peak_with_workspace_bytes(shape))
            if peaks[-1] <= self.budget_bytes:
                return number
        said = ", ".join(f"{dim} = {size}" for dim, size in sorted(shape.items()))
        raise InfeasibleBudget(
            f"no plan keeps a call with {said} within {format_bytes(self.budget_bytes)}",
            smallest_peak_bytes=min(peaks),
            lower_bound_bytes=0,
            why=f"the lowest of {len(peaks)} plans has a peak of {format_bytes(min(peaks))} at this shape",
            next_step="allow more bytes, or give dynamic= a range that ends below this shape",
        )


class ShapeExecutable(Executable):
    """The plans of one program, each lowered when it is first needed; called like any other program."""

    def __init__(
        self, graph: Graph, plans: ShapePlans, *, name: str, watches: tuple[Watch, ...] = ()
    ) -> None:
        self._graph, self._plans, self._watches = graph, plans, watches
        self._compiled: dict[int, Compiled] = {}
        self.runs = [0] * len(plans.plans)  # by position of a plan, how often it was prepared
        self.name = name
        self._start(self._of(0))

    def prepare(self, shape: Mapping[str, int]) -> Compiled:
        """The fastest plan within the budget; `InfeasibleBudget` where none is."""
        number = self._plans.choose(shape)
        self.runs[number] += 1
        return self._of(number)

    def _of(self, number: int) -> Compiled:
        if number not in self._compiled:
            schedule = self._plans.plans[number].schedule
            lowered = lower(self._graph, schedule, registry(), watches=self._watches)
            named = f"{self.name} (plan {number})" if number else self.name
            self._compiled[number] = Compiled(lowered, named)
        return self._compiled[number]
