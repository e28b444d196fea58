"""Runs the plans of one program: each call the one that is chosen for its shape."""

from __future__ import annotations

from typing import Any

import torch

from neaptide.ir.graph import Graph
from neaptide.lower.torch_code import Watch, lower
from neaptide.ops import registry
from neaptide.runtime.calls.executor import Executable, Input
from neaptide.runtime.shapes.plans import ShapePlans


class ShapeExecutable(Executable):
    """The plans of one program, lowered when they are first needed; called like any other program.

    `program` is that of the fastest plan, for reading.

    Attributes:
        runs: by position of a plan, how often it ran.
    """

    def __init__(
        self, graph: Graph, plans: ShapePlans, *, name: str, watches: tuple[Watch, ...] = ()
    ) -> None:
        super().__init__(lower(graph, plans.plans[0].schedule, registry(), watches=watches), name=name)
        self._plans, self._watches = plans, watches
        self._others: dict[int, Executable] = {}
        self._last: Executable = self
        self.runs = [0] * len(plans.plans)

    def run(self, inputs: list[Input], watched: dict[str, torch.Tensor] | None = None) -> tuple[Any, ...]:
        """As `Executable.run`, by the fastest plan within the budget at the shapes of the inputs."""
        number = self._plans.choose(self._dims.read(inputs))
        self.runs[number] += 1
        if not number:
            self._last = self
            return super().run(inputs, watched)
        self._last = self._other(number)
        self.interruption = None
        try:
            return self._last.run(inputs, watched)
        finally:
            self.interruption = self._last.interruption

    def _other(self, number: int) -> Executable:
        if number not in self._others:
            schedule = self._plans.plans[number].schedule
            lowered = lower(self.program.graph, schedule, registry(), watches=self._watches)
            self._others[number] = Executable(lowered, name=f"{self.name} (plan {number})")
        return self._others[number]

    def written(self, step: int | None = None) -> tuple[str, ...]:
        """As `Executable.written`, of the plan that ran last."""
        return super().written(step) if self._last is self else self._last.written(step)
