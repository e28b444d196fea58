"""Seconds of all nodes of a graph for one shape after another: formulas once, numbers at each shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from neaptide.analysis.alias import is_pure_view
from neaptide.analysis.loops import NO_BODIES, Bodies, body_schedule, trips
from neaptide.analysis.shape_peaks import LoopBytes
from neaptide.cost.model import HOST_SCALAR_S, EstimatedCost, calls_of_trip, is_host_arithmetic, node_work
from neaptide.ir.graph import Graph
from neaptide.symbolic.stacked import Ints, StackedSizes

Floats: TypeAlias = NDArray[np.float64]
_Body: TypeAlias = "tuple[CostOfShapes, NDArray[np.intp]]"
"""What the nodes of a loop's body take, and which of them run in a trip, repetitions included."""


class CostOfShapes:
    """What `EstimatedCost.under(binding)` says of each node of a graph, for any binding.

    `loop_bytes` tell the workspace of loops.
    """

    def __init__(self, graph: Graph, cost: EstimatedCost, bodies: Bodies = NO_BODIES) -> None:
        self._device, self._graph, self._call_s = cost.device, graph, cost.call_s
        self._loops: dict[int, _Body] = {}
        self.loop_bytes: dict[int, LoopBytes] = {}
        self._plain = np.zeros(len(graph.nodes))
        works, nodes, makers = [], [], []
        for node in graph.nodes:
            if node.regions:
                order = body_schedule(node, bodies)
                steps = np.array([step.target for step in order.node_steps()], dtype=np.intp)
                inner = CostOfShapes(node.regions[0].body, cost, order.bodies)
                self._loops[node.id] = inner, steps
                self.loop_bytes[node.id] = LoopBytes(graph, node, cost.workspace_size, bodies)
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
        for number, (inner, steps) in self._loops.items():
            node = self._graph.nodes[number]
            calls_s = calls_of_trip(node.regions[0]) * self._call_s
            for count, sizes in trips(self._graph, node, node.regions[0], binding):
                found[number] += count * (calls_s + float(inner.seconds(sizes)[steps].sum()))
        return found

    def flops(self, binding: Mapping[str, int]) -> Ints:
        """Floating-point operations of each node."""
        found = np.zeros(len(self._plain), dtype=np.int64)
        found[self._nodes] = self._flops.at(binding)
        for number, (inner, steps) in self._loops.items():
            node = self._graph.nodes[number]
            for count, sizes in trips(self._graph, node, node.regions[0], binding):
                found[number] += count * int(inner.flops(sizes)[steps].sum())
        return found


def _seconds_at(work: Ints, rate: Floats, half_work: Floats | float, fall: float) -> Floats:
    """`cost.model.roofline_seconds` of one kind of work for a stack of calls: 0 for none."""
    done = np.maximum(work, 1).astype(np.float64)
    return np.where(work > 0, (done + half_work**fall * done ** (1.0 - fall)) / rate, 0.0)
