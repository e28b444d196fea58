"""The calls of a graph with their keys, and which of them read something that is not what the graph says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from neaptide.analysis.loops import Binding, trips
from neaptide.cost.model import is_host_arithmetic
from neaptide.cost.op_key import OpCall, digest, op_call
from neaptide.cost.op_record import OpRecord, OutputFacts
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node
from neaptide.ir.values import Value
from neaptide.ops.structural import CONSTANT_OP

FindRecord = Callable[[str], OpRecord | None]


@dataclass(frozen=True, slots=True)
class KeyedCall:
    """A call and the key under which it is remembered."""

    key: str
    call: OpCall


class GraphCalls:
    """Calls of a graph by node id; None for what is no operation of the framework (loops, literals, numbers).

    Args:
        graph: the program.
        environment: everything beside the call that costs depend on; part of every key.
        binding: values of symbolic dims.

    Raises:
        SymbolicError: a dim has no value.
    """

    def __init__(self, graph: Graph, environment: str, binding: Binding) -> None:
        self.graph = graph
        self._environment = environment
        self._binding = binding
        self._plain = [keyed_call(graph, node, environment, binding) for node in graph.nodes]
        self._bodies = {
            node.id: [
                GraphCalls(loop.body, environment, sizes)
                for loop in node.regions
                for _, sizes in trips(graph, node, loop, binding)
            ]
            for node in graph.nodes
            if node.regions
        }

    def resolved(self, find: FindRecord) -> list[KeyedCall | None]:
        """Calls by node; where an operand turned out to be other than the graph says, its producer makes it.

        A result of such a call is not followed any further.

        Args:
            find: what is known of a call, by key.
        """
        opaque = frozenset(self._opaque(find))
        if not opaque:
            return list(self._plain)
        return [
            keyed_call(self.graph, node, self._environment, self._binding, opaque)
            if opaque.intersection(node.inputs)
            else plain
            for node, plain in zip(self.graph.nodes, self._plain, strict=True)
        ]

    def distinct(self, find: FindRecord) -> Iterator[KeyedCall]:
        """Every call once, those in loops included."""
        seen: set[str] = set()
        for keyed in self.in_order(find):
            if keyed.key not in seen:
                seen.add(keyed.key)
                yield keyed

    def in_order(self, find: FindRecord) -> Iterator[KeyedCall]:
        """The calls in program order; of a loop, those of one trip of each kind of trip."""
        for node, keyed in zip(self.graph.nodes, self.resolved(find), strict=True):
            if keyed is not None:
                yield keyed
            for body in self._bodies.get(node.id, ()):
                yield from body.in_order(lambda _key: None)

    def _opaque(self, find: FindRecord) -> Iterator[int]:
        for node, keyed in zip(self.graph.nodes, self._plain, strict=True):
            record = None if keyed is None or keyed.call.producers else find(keyed.key)
            if record is None or record.failure:
                continue
            for value, facts in zip(node.outputs, record.outputs, strict=True):
                if facts is not None and self._differs(self.graph.values[value], facts):
                    yield value

    def _differs(self, value: Value, facts: OutputFacts) -> bool:
        shape = tuple(n.evaluate(self._binding) for n in value.shape)
        return value.storage is not None and (facts.dtype, facts.shape) != (value.dtype, shape)


def keyed_call(
    graph: Graph, node: Node, environment: str, binding: Binding, opaque: frozenset[int] = frozenset()
) -> KeyedCall | None:
    """The call of one node; None for what is no operation of the framework. `opaque` as in `op_call`."""
    if node.regions or node.op == CONSTANT_OP or is_host_arithmetic(graph, node):
        return None
    call = op_call(graph, node, binding, opaque)
    return KeyedCall(digest(f"{environment}: {call.text()}"), call)
