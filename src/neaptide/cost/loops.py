"""What a loop takes: seconds of its trips in the order of the body, and workspace of the nodes in it."""

from __future__ import annotations

from collections.abc import Callable

from neaptide.analysis.loops import NO_BODIES, Binding, Bodies, Path, body_schedule, trips
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node

NodeSeconds = Callable[[Graph, Node, Binding], float]
NodeBytes = Callable[[Graph, Node, Binding], int]


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

    Args:
        graph: where the loop is.
        node: the loop.
        binding: values of symbolic dims around it.
        inner: what a node of the body takes that is no loop.
        bodies: by node, the order of one trip of its loop.
        call_s: time of one call that computes nothing, where that adds up.
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


def loop_scratch(graph: Graph, node: Node, binding: Binding, inner: NodeBytes) -> dict[Path, int]:
    """Workspace of the nodes in a loop's body and in the bodies inside it, of any trip the most, by path from the body.

    Args:
        graph: where the loop is.
        node: the loop.
        binding: values of symbolic dims around it.
        inner: what a node of the body needs that is no loop.
    """
    found: dict[Path, int] = {}
    for loop in node.regions:
        for _, sizes in trips(graph, node, loop, binding):
            for part in loop.body.nodes:
                if part.regions:
                    nested = loop_scratch(loop.body, part, sizes, inner)
                    here = {(part.id, *path): nbytes for path, nbytes in nested.items()}
                else:
                    here = {(part.id,): inner(loop.body, part, sizes)}
                for path, nbytes in here.items():
                    if nbytes:
                        found[path] = max(found.get(path, 0), nbytes)
    return found
