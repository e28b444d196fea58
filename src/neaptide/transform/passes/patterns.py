"""What patterns of passes ask: which operator a node is, who made its operand, and whether anybody else uses it."""

from __future__ import annotations

from collections.abc import Collection

from neaptide.analysis.folded import folded_values
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node
from neaptide.ir.registry import Call, OpRegistry, Trait
from neaptide.ops.onnx.table import operator_of
from neaptide.ops.onnx.windows import WindowForm, windows_of


class Patterns:
    """Questions about the nodes of a graph. O(size) to make."""

    def __init__(self, graph: Graph, registry: OpRegistry) -> None:
        self.graph, self.registry = graph, registry
        self.users, self.outputs = graph.consumers(), frozenset(graph.outputs)
        self.weights = folded_values(graph)

    def is_a(self, node: Node, *operators: str) -> bool:
        """Whether a node is one of some operators of the standard domain."""
        return operator_of(node.op) in operators

    def has(self, node: Node, *traits: Trait) -> bool:
        """Whether the row of a node has one of some traits."""
        spec = self.registry.find(node.op)
        return spec is not None and not spec.traits.isdisjoint(traits)

    def maker(self, value: int | None) -> Node | None:
        """The node that makes a value; None for what the caller owns."""
        producer = None if value is None else self.graph.producer(value)
        return None if producer is None else self.graph.nodes[producer]

    def only_maker(self, value: int | None) -> Node | None:
        """The node that makes a value as its only result, where one node alone uses it; else None."""
        made = self.maker(value)
        if value is None or made is None or len(made.outputs) != 1:
            return None
        return made if len(self.users[value]) == 1 and value not in self.outputs else None

    def are_weights(self, values: Collection[int | None]) -> bool:
        """Whether all of some values are weights; what is left out is none that matters."""
        return all(value is None or value in self.weights for value in values)

    def windows(self, node: Node) -> tuple[WindowForm, ...] | None:
        """How a convolution or a pool reads rows and columns."""
        return windows_of(Call(self.graph, node))
