"""What a loop takes: its body's seconds, in the order of the body, under the sizes of each trip."""

from __future__ import annotations

from collections.abc import Callable

from neaptide.analysis.loops import NO_BODIES, Binding, Bodies, body_schedule, trips
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node

NodeSeconds = Callable[[Graph, Node, Binding], float]


def loop_seconds(
    graph: Graph, node: Node, binding: Binding, inner: NodeSeconds, bodies: Bodies = NO_BODIES
) -> float:
    """Seconds of all trips, one after another, repetitions in the body included.

    Args:
        graph: where the loop is.
        node: the loop.
        binding: values of symbolic dims around it.
        inner: what a node of the body takes that is no loop.
        bodies: by node, the order of one trip of its loop.
    """
    total = 0.0
    for loop in node.regions:
        order = body_schedule(node, bodies)
        for count, sizes in trips(graph, node, loop, binding):
            for step in order.node_steps():
                part = loop.body.nodes[step.target]
                total += count * (
                    loop_seconds(loop.body, part, sizes, inner, order.bodies)
                    if part.regions
                    else inner(loop.body, part, sizes)
                )
    return total
