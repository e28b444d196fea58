"""What a loop takes: seconds of its trips in the order of the body, and workspace of the nodes in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from neaptide.analysis.loops import (
    NO_BODIES,
    NOTHING_IN_BODIES,
    Binding,
    Bodies,
    InBodies,
    body_schedule,
    trips,
)
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node

NodeSeconds = Callable[[Graph, Node, Binding], float]
NodeBytes = Callable[[Graph, Node, Binding], int]
StorageSizes = Callable[[Graph, Binding], Mapping[int, int]]


def loop_seconds(
    graph: Graph,
    node: Node,
    binding: Binding,
    inner: NodeSeconds,
    bodies: Bodies = NO_BODIES,
    *,
    call_s: float,
) -> float:
    """Seconds of all trips, one after another, repetitions in the body included.

    A trip is one call of the body, and one call for each part that it is handed: of an input, or of a result to fill.
    """
    total = 0.0
    for loop in node.regions:
        order = body_schedule(node, bodies)
        calls = 1 + len(loop.slices) + sum(merge.how == "concat" for merge in loop.merges)
        for count, sizes in trips(graph, node, loop, binding):
            total += count * calls * call_s
            for step in order.node_steps():
                part = loop.body.nodes[step.target]
                total += count * (
                    loop_seconds(loop.body, part, sizes, inner, order.bodies, call_s=call_s)
                    if part.regions
                    else inner(loop.body, part, sizes)
                )
    return total


def known_in_loop(
    graph: Graph, node: Node, binding: Binding, inner: NodeBytes, sizes_of: StorageSizes | None = None
) -> InBodies:
    """What is known of bytes in a loop's body and in the bodies inside it, of any trip the most, by path from the body."""
    found = NOTHING_IN_BODIES
    for loop in node.regions:
        for _, sizes in trips(graph, node, loop, binding):
            scratch = {
                part.id: nbytes
                for part in loop.body.nodes
                if not part.regions and (nbytes := inner(loop.body, part, sizes))
            }
            own = {} if sizes_of is None else sizes_of(loop.body, sizes)
            found = found.most(InBodies.here(scratch, own))
            for part in loop.body.nodes:
                if part.regions:
                    nested = known_in_loop(loop.body, part, sizes, inner, sizes_of)
                    found = found.most(nested.around(part.id))
    return found
