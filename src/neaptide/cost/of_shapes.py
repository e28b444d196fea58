"""Seconds of all nodes of a graph for one shape after another: formulas once, numbers at each shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from neaptide.analysis.alias import is_pure_view
from neaptide.analysis.loops import NO_BODIES, Bodies, body_schedule, trips
from neaptide.analysis.shape_peaks import LoopBytes
from neaptide.cost.model import HOST_SCALAR_S, EstimatedCost, is_host_arithmetic, node_work
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node
from neaptide.symbolic.stacked import Ints, StackedSizes

Floats: TypeAlias = NDArray[np.float64]


class CostOfShapes:
    """What `EstimatedCost.under(binding)` says of each node of a graph, for any binding."""

    def __init__(self, graph: Graph, cost: EstimatedCost, bodies: Bodies = NO_BODIES) -> None:
        self._device = cost.device
        self.loops: dict[int, LoopOfShapes] = {}
        self._plain = np.zeros(len(graph.nodes))
        works, nodes, makers = [], [], []
        for node in graph.nodes:
            if node.regions:
                self.loops[node.id] = LoopOfShapes(graph, node, cost, bodies)
            elif is_host_arithmetic(graph, node):
                self._plain[node.id] = HOST_SCALAR_S
            elif is_pure_view(graph, node):
                self._plain[node.id] = cost.device.host_call_s
            else:
                works.append(node_work(graph, node, cost.registry))
                nodes.append(node.id)
                makers += [node.id] * len(works[-1].made)
        device = cost.device
        rates = [device.rate_flops_per_s(work.dtype) for work in works]
        self._nodes, self._makers = np.array(nodes, dtype=np.intp), np.array(makers, dtype=np.intp)
        self._rates = np.array(rates)
        self._half_flops = device.half_flops * (self._rates / device.rate_flops_per_s("float32"))
        self._flops = StackedSizes([work.flops for work in works])
        self._moved = StackedSizes([work.moved for work in works])
        self._made = StackedSizes([nbytes for work in works for nbytes in work.made])

    def seconds(self, binding: Mapping[str, int]) -> Floats:
        """Seconds of each node. O(nodes)."""
        device, found = self._device, self._plain.copy()
        arithmetic = _seconds_at(self._flops.at(binding), self._rates, self._half_flops, device.fall)
        bandwidth = np.full(len(self._nodes), device.main_space.bandwidth_bytes_per_s)
        memory = _seconds_at(self._moved.at(binding), bandwidth, device.half_bytes, device.fall)
        found[self._nodes] = device.launch_s + np.maximum(arithmetic, memory)
        made = self._made.at(binding)
        if device.fresh_from_bytes > 0:
            fresh = np.where(made >= device.fresh_from_bytes, made * device.fresh_s_per_byte, 0.0)
            np.add.at(found, self._makers, fresh)
        for node, loop in self.loops.items():
            found[node] = loop.seconds(binding)
        return found

    def flops(self, binding: Mapping[str, int]) -> Ints:
        """Floating-point operations of each node."""
        found = np.zeros(len(self._plain), dtype=np.int64)
        found[self._nodes] = self._flops.at(binding)
        for node, loop in self.loops.items():
            found[node] = loop.flops(binding)
        return found


class LoopOfShapes:
    """What a loop takes at any sizes."""

    def __init__(self, graph: Graph, node: Node, cost: EstimatedCost, bodies: Bodies = NO_BODIES) -> None:
        loop, order = node.regions[0], body_schedule(node, bodies)
        self._graph, self._node, self._loop, self._call_s = graph, node, loop, cost.call_s
        self._calls = 1 + len(loop.slices) + sum(merge.how == "concat" for merge in loop.merges)
        self._steps = np.array([step.target for step in order.node_steps()], dtype=np.intp)
        self._body = CostOfShapes(loop.body, cost, order.bodies)
        self._bytes = LoopBytes(graph, node, cost.workspace_size, bodies)

    def seconds(self, binding: Mapping[str, int]) -> float:
        """Seconds of all trips, as `cost.model.loop_seconds`. O(nodes of the body)."""
        total = 0.0
        for count, sizes in trips(self._graph, self._node, self._loop, binding):
            total += count * (
                self._calls * self._call_s + float(self._body.seconds(sizes)[self._steps].sum())
            )
        return total

    def flops(self, binding: Mapping[str, int]) -> int:
        """Floating-point operations of all trips. O(nodes of the body)."""
        found = trips(self._graph, self._node, self._loop, binding)
        return sum(count * int(self._body.flops(sizes)[self._steps].sum()) for count, sizes in found)

    def workspace(self, binding: Mapping[str, int]) -> int:
        """Most bytes that a trip holds, as `analysis.shape_peaks.LoopBytes`."""
        return self._bytes.at(binding)


def _seconds_at(work: Ints, rate: Floats, half_work: Floats | float, fall: float) -> Floats:
    """`cost.roofline` for a stack of calls: 0 for no work."""
    done = np.maximum(work, 1).astype(np.float64)
    lost = half_work if fall == 1.0 else half_work**fall * done ** (1.0 - fall)
    return np.where(work > 0, (done + lost) / rate, 0.0)
