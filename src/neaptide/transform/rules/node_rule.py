"""Rules that change single nodes: a pattern says of each node what is to be done there, and a function does it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from neaptide.errors import RewriteError
from neaptide.ir.edit import Edited, GraphEdit
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node
from neaptide.ir.registry import OpRegistry
from neaptide.ir.values import Value, contiguous_strides
from neaptide.transform.rewrite import Rewrite

Pattern = Callable[[Node], Any]
"""What is to be done at a node; a text that says why nothing may be; None where the rule is not about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRule:
    """A rule of one pattern. The nodes of a rewrite are those that change, ascending; there are no settings.

    Attributes:
        pattern: for a graph; O(size) to make.
        change: does at a node what the pattern says, in the edit of a graph.
        cannot: what a node without a place may not do, in words, and why where the rule is not about it.
        apart: each place is a rewrite of its own; else all are one.
    """

    name: str
    summary: str
    pattern: Callable[[Graph, OpRegistry], Pattern]
    change: Callable[[GraphEdit, Graph, Node, Any], None]
    cannot: tuple[str, str]
    keeps_bits: bool = True
    apart: bool = False
    each_node: bool = True
    are_alternatives: bool = False

    def find(self, graph: Graph, registry: OpRegistry) -> Iterator[Rewrite]:
        """As `Rule.find`. O(size of the graph)."""
        place_of, found = self.pattern(graph, registry), []
        for node in graph.nodes:
            place = place_of(node)
            if place is None or isinstance(place, str):
                continue
            if self.apart:
                yield Rewrite(self.name, (node.id,), (), self.keeps_bits)
            else:
                found.append(node.id)
        if found:
            yield Rewrite(self.name, tuple(found), (), self.keeps_bits)

    def apply(self, graph: Graph, registry: OpRegistry, rewrite: Rewrite) -> Edited:
        """As `Rule.apply`. O(size of the graph)."""
        nodes = rewrite.nodes
        if not nodes or list(nodes) != sorted(set(nodes)) or rewrite.settings:
            raise RewriteError("it must name nodes, ascending, and no settings")
        if self.apart and len(nodes) > 1:
            raise RewriteError("it must name one node")
        place_of, edit = self.pattern(graph, registry), GraphEdit(graph)
        for node in (graph.nodes[number] for number in nodes):
            place = place_of(node)
            if place is None or isinstance(place, str):
                what, otherwise = self.cannot
                reason = f"{node.op} may not {what}: {place or otherwise}"
                raise RewriteError(reason, where=node.source.location or None)
            self.change(edit, graph, node, place)
        return edit.finish()


def is_row_major(value: Value) -> bool:
    """Whether the elements of a value lie in row-major order without gaps."""
    return value.storage is not None and value.strides == contiguous_strides(value.shape)


def used_once(graph: Graph) -> Callable[[int], bool]:
    """Tells of a value whether one node alone uses it. O(size of the graph)."""
    users, outputs = graph.consumers(), set(graph.outputs)
    return lambda value: len(set(users[value])) == 1 and value not in outputs
