"""A program for all shapes as integers: its structure once, its sizes and seconds for one shape after another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from neaptide.analysis.shape_peaks import LoopBytes
from neaptide.analysis.sizes import node_device
from neaptide.cost.model import EstimatedCost
from neaptide.cost.of_shapes import CostOfShapes, Floats
from neaptide.ir.graph import Graph
from neaptide.planner.points.units import Units, units_of
from neaptide.planner.pricing import Pricing
from neaptide.schedule.problem import StepProblem
from neaptide.symbolic.size_expr import SizeExpr
from neaptide.symbolic.stacked import Ints, StackedSizes


@dataclass(frozen=True, slots=True, eq=False)
class ShapeSizes:
    """What one shape makes of a program."""

    storage_bytes: Sequence[int]  # by storage; none of what the caller owns
    workspace: Sequence[int]  # by node, scratch bytes
    seconds: float  # of a run that evicts nothing
    repeat_seconds: Sequence[float]  # by node, of a repetition
    during: Ints  # by position, bytes when nothing was evicted; last those at the end
    before: Ints  # by position, bytes directly before that node runs

    @property
    def peak_bytes(self) -> int:
        """Of a run that evicts nothing."""
        return int(self.during.max())

    def with_storages_alone(self, order: Sequence[int], in_bodies: Mapping[int, int]) -> ShapeSizes:
        """The same without scratch bytes, of a program that runs in this order; those of storages in loops stay."""
        left = [in_bodies.get(node, 0) for node in range(len(self.workspace))]
        during = self.during.copy()
        during[: len(order)] -= (np.array(self.workspace, dtype=np.int64) - np.array(left))[list(order)]
        return replace(self, workspace=left, during=during)


class ShapedProgram:
    """A program whose sizes are expressions in dims, under one order of first executions.

    A loop is one operation; it is never run again, and nothing in it is evicted. `sample` is any shape, with lengths of
    parts: it says on which device bytes count. `known` are measured bytes and seconds of a graph without dims and loops.

    Attributes:
        loops: nodes with a loop, whose workspace follows from the sizes of its trips and is no expression.
    """

    def __init__(
        self,
        graph: Graph,
        cost: EstimatedCost,
        order: Sequence[int],
        sample: Mapping[str, int],
        known: StepProblem | None = None,
    ) -> None:
        self.graph = graph
        self.loops = frozenset(node.id for node in graph.nodes if node.regions)
        self._known_seconds = None if known is None else np.array(known.seconds)
        pricing = Pricing(cost.under(sample), cost.registry, binding=sample)
        self.problem: StepProblem = known or pricing.problem(graph)
        units = units_of(self.problem, order)
        self.units: Units = replace(units, refused=units.refused | self.loops.intersection(units.chains))
        problem, device = self.problem, self.problem.device
        owned = set(graph.input_storages())
        zero = SizeExpr.const(0)
        self.storage_sizes = tuple(
            zero if s.id in owned or s.device != device else s.nbytes for s in graph.storages
        )
        self.persistent_size = graph.total_bytes(s for s in owned if graph.storages[s].device == device)
        self.workspace_sizes = tuple(
            cost.workspace_size(graph, node)
            if node.id not in self.loops and node_device(graph, node) == device
            else zero
            for node in graph.nodes
        )
        if known is not None:
            self.storage_sizes = tuple(map(SizeExpr.const, known.storage_bytes))
            self.workspace_sizes = tuple(map(SizeExpr.const, known.workspace))
            self.persistent_size = SizeExpr.const(known.persistent_bytes)
        self._bytes = StackedSizes([*self.storage_sizes, *self.workspace_sizes, self.persistent_size])
        self._cost = CostOfShapes(graph, cost)
        self._bodies = {
            node: LoopBytes(graph, graph.nodes[node], lambda _graph, _node: zero) for node in self.loops
        }
        self._extra_seconds = np.array(problem.repeat_seconds) - np.array(problem.seconds)
        self._order = np.array(self.units.order, dtype=np.intp)
        created = [s for s, creator in enumerate(problem.creator) if creator >= 0]
        self._created = np.array(created, dtype=np.intp)
        self._born = np.array([self.units.position_of[problem.creator[s]] for s in created], dtype=np.intp)
        self._last = np.array(
            [max(self.units.last_use[s], b) for s, b in zip(created, self._born, strict=True)], dtype=np.intp
        )

    def at(self, binding: Mapping[str, int]) -> ShapeSizes:
        """Sizes and seconds of a shape. O(nodes + storages)."""
        count, storages = self.problem.node_count, len(self.storage_sizes)
        numbers = self._bytes.at(binding)
        nbytes, workspace, persistent = numbers[:storages], numbers[storages:-1], int(numbers[-1])
        for node in self.loops:
            workspace[node] = self._cost.loop_bytes[node].at(binding)
        change = np.zeros(count + 2, dtype=np.int64)
        np.add.at(change, self._born, nbytes[self._created])
        gone = np.minimum(self._last, count) + 1
        np.add.at(change, gone, -nbytes[self._created])
        live = persistent + np.cumsum(change[: count + 1])
        during = live.copy()
        during[:count] += workspace[self._order]
        made = np.zeros(count + 1, dtype=np.int64)
        np.add.at(made, self._born, nbytes[self._created])
        once = self._seconds(binding)
        again = (once + self._extra_seconds).tolist()
        return ShapeSizes(nbytes.tolist(), workspace.tolist(), float(once.sum()), again, during, live - made)

    def bytes_in_bodies(self, binding: Mapping[str, int]) -> dict[int, int]:
        """By loop, most bytes of storages that a trip makes for itself."""
        return {node: self._bodies[node].at(binding) for node in self.loops}

    def problem_at(self, binding: Mapping[str, int]) -> StepProblem:
        """The integer problem of a shape. Its bounds are what the caller owns, which no schedule is below."""
        sizes = self.at(binding)
        seconds = self._seconds(binding)
        persistent = self.persistent_size.evaluate(binding)
        return replace(
            self.problem,
            storage_bytes=tuple(sizes.storage_bytes),
            persistent_bytes=persistent,
            workspace=tuple(sizes.workspace),
            seconds=tuple(seconds.tolist()),
            repeat_seconds=tuple(sizes.repeat_seconds),
            lower_bound_bytes=persistent,
            order_lower_bound_bytes=persistent,
        )

    def _seconds(self, binding: Mapping[str, int]) -> Floats:
        return self._cost.seconds(binding) if self._known_seconds is None else self._known_seconds
