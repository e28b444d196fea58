"""The rows of operations as they hold in graphs of FX."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node
from neaptide.ir.registry import OpRegistry
from neaptide.ops import registry


def rows() -> OpRegistry:
    """All rows; those declared by the user included."""
    return _of_fx(registry())


@cache
def _of_fx(known: OpRegistry) -> OpRegistry:
    """An operation takes the operand of which it needs the shape alone."""
    return OpRegistry([replace(row, shape_only=()) for row in known])


def drawn_once(graph: Graph) -> Graph:
    """The graph with its random numbers drawn from streams whose state nobody keeps: they are drawn once. O(nodes)."""

    def drawing(node: Node) -> Node:
        stream = node.effects.rng
        return node if stream is None else replace(node, effects=replace(node.effects, rng=f"fx:{stream}"))

    if all(node.effects.rng is None for node in graph.nodes):
        return graph
    return replace(graph, nodes=tuple(map(drawing, graph.nodes)))
