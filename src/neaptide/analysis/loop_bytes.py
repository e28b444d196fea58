"""Bytes that the trips of a loop hold, at any sizes: which storages are there at each step does not depend on sizes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from neaptide.analysis.loops import NO_BODIES, Binding, Bodies, body_schedule, trips
from neaptide.analysis.play_bytes import play
from neaptide.analysis.sizes import node_device
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node
from neaptide.ir.schedule import Schedule
from neaptide.symbolic.size_expr import SizeExpr
from neaptide.symbolic.stacked import Ints, StackedSizes

NodeWorkspace = Callable[[Graph, Node], SizeExpr]
"""Scratch bytes of a node that is no loop."""


class LoopBytes:
    """What `analysis.profile_bytes.loop_workspace_bytes` says of a loop, for one binding after another.

    Args:
        graph: where the loop is.
        node: the loop.
        workspace: scratch bytes of the nodes in bodies.
        bodies: by node, the order of one trip of its loop.
    """

    def __init__(
        self, graph: Graph, node: Node, workspace: NodeWorkspace, bodies: Bodies = NO_BODIES
    ) -> None:
        self._graph, self._node, self._loop = graph, node, node.regions[0]
        device = node_device(graph, node)
        self._body = _BodyBytes(self._loop.body, body_schedule(node, bodies), workspace, device)

    def at(self, binding: Binding) -> int:
        """Most bytes that a trip holds beyond what it is handed and what it writes its results to. O(steps x sizes).

        Args:
            binding: values of the dims of the graph around the loop.

        Raises:
            SymbolicError: a dim has no value.
        """
        found = trips(self._graph, self._node, self._loop, binding)
        return max(self._body.peak(sizes) for _, sizes in found)


class _BodyBytes:
    """Bytes of one trip at each step: a matrix of counts times the sizes."""

    def __init__(self, body: Graph, schedule: Schedule, workspace: NodeWorkspace, device: str) -> None:
        numbers: dict[SizeExpr, int] = {}
        size_of = {
            storage.id: numbers.setdefault(storage.nbytes, len(numbers))
            for storage in body.storages
            if storage.device == device
        }
        running = [body.nodes[step.target] for step in schedule.node_steps()]
        self._loops = {
            step: LoopBytes(body, node, workspace, schedule.bodies)
            for step, node in enumerate(running)
            if node.regions
        }
        scratch = {
            step: numbers.setdefault(workspace(body, node), len(numbers))
            for step, node in enumerate(running)
            if not node.regions and node_device(body, node) == device
        }
        change = np.zeros((len(running) + 1, len(numbers)), dtype=np.int64)
        for presence in play(body, schedule).presences:
            if (number := size_of.get(presence.instance.storage)) is not None:
                change[presence.start, number] += 1
                change[presence.end, number] -= 1
        self._counts: Ints = np.cumsum(change, axis=0)[: len(running)]
        for step, number in scratch.items():
            self._counts[step, number] += 1
        self._sizes = StackedSizes(list(numbers))

    def peak(self, binding: Binding) -> int:
        """Most bytes that a trip makes and needs as scratch under some sizes."""
        found = self._counts @ self._sizes.at(binding)
        for step, loop in self._loops.items():
            found[step] += loop.at(binding)
        return int(found.max(initial=0))
