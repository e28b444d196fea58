"""What is written: nodes in their order, and what is known of their values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node, operand_values, result_slots
from neaptide.ir.values import Kind, Value
from neaptide.lower.c.code import Code
from neaptide.lower.c.operators.node_call import NodeCall, Numbers
from neaptide.lower.c.operators.rows import operator_of
from neaptide.lower.c.views import Place, View


@dataclass(slots=True)
class Program:
    """Nodes in the order in which they run, with what is known about their values.

    Attributes:
        order: ids of the nodes that run; those that make weights are not among them.
        known: by value, numbers that are known when the file is written.
        outside: storages that are not in the arena: weights.
        kept: storages that are needed after the last node.
        given: storages that are there before the first node.
        updates: by value that is made, the weight that it replaces.
    """

    graph: Graph
    order: tuple[int, ...]
    known: Mapping[int, Numbers]
    outside: frozenset[int]
    kept: frozenset[int] = frozenset()
    given: frozenset[int] = frozenset()
    updates: Mapping[int, int] = field(default_factory=dict)

    def dims(self, value: Value) -> tuple[int, ...]:
        return tuple(extent.constant_value() for extent in value.shape)

    def call(
        self, node: Node, code: Code, operands: Sequence[View | None], results: Sequence[View | None]
    ) -> NodeCall:
        """The node with its operands."""
        op, version = operator_of(node)
        values = operand_values(node)
        constants = tuple(None if v is None else self.known.get(v) for v in values)
        return NodeCall(code, op, version, tuple(operands), tuple(results), dict(node.kwargs), constants)

    def plain_call(self, node: Node) -> NodeCall:
        """The node with row-major operands at no place, to ask its row about shapes."""
        operands = [None if v is None else self._plain(v) for v in operand_values(node)]
        results = [None if v is None else self._plain(v) for v in result_values(node)]
        return self.call(node, Code(), operands, results)

    def _plain(self, value: int) -> View:
        found = self.graph.values[value]
        return View.dense(Place("0"), found.dtype, self.dims(found))


def result_values(node: Node) -> list[int | None]:
    """Value ids of a node's results by position; None for one that is not made."""
    return [None if slot is None else node.outputs[slot] for slot in result_slots(node)]


def model_inputs(graph: Graph) -> list[int]:
    """Inputs that are no weights."""
    kinds = {storage.id: storage.kind for storage in graph.storages}
    return [v for v in graph.inputs if (s := graph.values[v].storage) is None or kinds[s] is Kind.INPUT]


def storages_of(graph: Graph, values: Iterable[int]) -> frozenset[int]:
    """Storages on which some values lie."""
    return frozenset(s for value in values if (s := graph.values[value].storage) is not None)
