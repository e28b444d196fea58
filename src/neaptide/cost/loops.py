"""What a loop takes: its body's seconds under the sizes of each trip."""

from __future__ import annotations

from collections.abc import Callable

from neaptide.analysis.loops import Binding, trips
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node

NodeSeconds = Callable[[Graph, Node, Binding], float]


def loop_seconds(graph: Graph, node: Node, binding: Binding, inner: NodeSeconds) -> float:
    """Seconds of all trips, one after another; `inner` says what a node of the body takes."""
    total = 0.0
    for loop in node.regions:
        for count, sizes in trips(graph, node, loop, binding):
            total += count * sum(inner(loop.body, part, sizes) for part in loop.body.nodes)
    return total
