"""Bytes of one schedule at any shape: which storages are there at each step does not depend on how large they are.

A step holds so many storages of each size, and sizes are few: a graph of thousands of operations has some dozens. So the
bytes at all steps are a matrix of counts times the sizes at the shape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from neaptide.analysis.liveness import presences
from neaptide.analysis.loops import NO_BODIES, Binding, Bodies, body_schedule, trips
from neaptide.analysis.sizes import evaluate_storage_bytes, main_device, node_device, on_device
from neaptide.errors import UsageError
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node
from neaptide.ir.schedule import Schedule
from neaptide.symbolic.size_expr import SizeExpr
from neaptide.symbolic.stacked import Ints, StackedSizes

NodeWorkspace = Callable[[Graph, Node], SizeExpr]
"""Scratch bytes of a node that is no loop."""


def _counts(graph: Graph, schedule: Schedule, numbers: dict[SizeExpr, int], device: str) -> Ints:
    """By step, how many storages of each size that the graph makes are there; sizes get the next numbers."""
    running = schedule.node_steps()
    size_of = {
        storage.id: numbers.setdefault(storage.nbytes, len(numbers))
        for storage in graph.storages
        if storage.device == device
    }
    change = np.zeros((len(running) + 1, len(numbers)), dtype=np.int64)
    for instance, start, end in presences(graph, schedule)[0]:
        if not instance.is_persistent and (number := size_of.get(instance.storage)) is not None:
            change[start, number] += 1
            change[end, number] -= 1
    found: Ints = np.cumsum(change, axis=0)[: len(running)]
    return found


class ShapePeaks:
    """Peaks of a schedule at given shapes, of a graph without loops. O(steps x sizes + storages) to make.

    One shape in the range tells which device's bytes are counted. Workspace is taken as it is, whatever the shape.
    """

    def __init__(
        self,
        graph: Graph,
        schedule: Schedule,
        shape: Mapping[str, int],
        workspace: Mapping[int, int] | None = None,
    ) -> None:
        if any(node.regions for node in graph.nodes):
            raise UsageError("the peak of a graph with loops is not known for every shape")
        device = main_device(graph, evaluate_storage_bytes(graph, shape))
        numbers: dict[SizeExpr, int] = {}
        counts = _counts(graph, schedule, numbers, device)
        persistent = np.zeros(len(numbers), dtype=np.int64)
        for storage in graph.input_storages():
            if graph.storages[storage].device == device:
                persistent[numbers[graph.storages[storage].nbytes]] += 1
        scratch = on_device(graph, device, workspace or {})
        beside = [scratch[step.target] for step in schedule.node_steps()]
        self._sizes = StackedSizes(list(numbers))
        self._counts: Ints = counts + persistent if beside else persistent[np.newaxis]
        self._beside = np.array(beside or [0], dtype=np.int64)

    def peak_bytes(self, shape: Mapping[str, int]) -> int:
        """The highest bytes of storages at a shape, those of the caller included. O(steps x sizes)."""
        return int((self._counts @ self._sizes.at(shape)).max())

    def peak_with_workspace_bytes(self, shape: Mapping[str, int]) -> int:
        """The same with scratch bytes added."""
        return int((self._counts @ self._sizes.at(shape) + self._beside).max())


class LoopBytes:
    """What `analysis.profile_bytes.loop_workspace_bytes` says of a loop, for one binding after another."""

    def __init__(
        self, graph: Graph, node: Node, workspace: NodeWorkspace, bodies: Bodies = NO_BODIES
    ) -> None:
        self._graph, self._node, self._loop = graph, node, node.regions[0]
        body, order, device = self._loop.body, body_schedule(node, bodies), node_device(graph, node)
        running = [body.nodes[step.target] for step in order.node_steps()]
        numbers: dict[SizeExpr, int] = {}
        scratch = {
            step: numbers.setdefault(workspace(body, inner), len(numbers))
            for step, inner in enumerate(running)
            if not inner.regions and node_device(body, inner) == device
        }
        self._counts = _counts(body, order, numbers, device)
        for step, number in scratch.items():
            self._counts[step, number] += 1
        self._sizes = StackedSizes(list(numbers))
        self._inner = {
            step: LoopBytes(body, inner, workspace, order.bodies)
            for step, inner in enumerate(running)
            if inner.regions
        }

    def at(self, binding: Binding) -> int:
        """Most bytes that a trip holds beyond what it is handed and what it writes its results to. O(steps x sizes)."""
        return max(self._peak(sizes) for _, sizes in trips(self._graph, self._node, self._loop, binding))

    def _peak(self, binding: Binding) -> int:
        found = self._counts @ self._sizes.at(binding)
        for step, loop in self._inner.items():
            found[step] += loop.at(binding)
        return int(found.max(initial=0))
