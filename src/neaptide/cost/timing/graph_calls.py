"""The calls of a graph with their keys, where they stand in its program, and which of their operands are near there."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, replace

from neaptide.analysis.alias import is_pure_view
from neaptide.analysis.loops import Binding, trips
from neaptide.cost.model import is_host_arithmetic
from neaptide.cost.op_key import OpCall, call_key, digest, has_opaque_operand, op_call
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node
from neaptide.ops.structural import CONSTANT_OP


@dataclass(frozen=True, slots=True)
class KeyedCall:
    """A call and the key under which it is remembered."""

    key: str
    call: OpCall


@dataclass(frozen=True, slots=True)
class PlacedCall:
    """A call where it stands in a program.

    Attributes:
        near: its operands, by position, that the program has touched so lately that they are in the caches.
        times: how many times it runs like this.
    """

    keyed: KeyedCall
    near: tuple[int, ...] = ()
    times: int = 1


KeyedCalls = dict[Hashable, KeyedCall | None]
"""Calls by `call_key`, for graphs that have most of them in common."""


class GraphCalls:
    """Calls of a graph by node id, each worked out when it is first asked for; None as for `keyed_call`.

    `known` are calls of other graphs under the same environment and binding; those of this one are added.
    """

    def __init__(
        self, graph: Graph, environment: str, binding: Binding, known: KeyedCalls | None = None
    ) -> None:
        self.graph = graph
        self._environment = environment
        self._binding = binding
        self._known: KeyedCalls = {} if known is None else known
        self._by_node: dict[int, KeyedCall | None] = {}

    def __getitem__(self, number: int) -> KeyedCall | None:
        if number not in self._by_node:
            self._by_node[number] = self._found(self.graph.nodes[number])
        return self._by_node[number]

    def placed(self, cache_bytes: int) -> Iterator[PlacedCall]:
        """The calls in program order; of a loop, those of one trip of each kind of trip.

        The first trip stands for itself, and another one for all others of its kind: what all trips share is near in
        those. What a program touched within `cache_bytes` is near.
        """
        return self._placed(LatelyTouched(self.graph, self._binding, cache_bytes))

    def _placed(self, touched: LatelyTouched) -> Iterator[PlacedCall]:
        for node in self.graph.nodes:
            near = touched.slots(node)
            if (keyed := self[node.id]) is not None:
                yield PlacedCall(keyed, near)
            if node.regions:
                yield from self._in_trips(node, touched.cache_bytes)

    def _in_trips(self, node: Node, cache_bytes: int) -> Iterator[PlacedCall]:
        loop = node.regions[0]
        touched = LatelyTouched(loop.body, self._binding, cache_bytes)
        for position, (count, sizes) in enumerate(trips(self.graph, node, loop, self._binding)):
            inside = GraphCalls(loop.body, self._environment, sizes)
            touched.binding = sizes
            # Only the first trip of all finds nothing near.
            for times in filter(None, (count,) if position else (1, count - 1)):
                for placed in inside._placed(touched):
                    yield replace(placed, times=times * placed.times)
                touched.forget(loop.body.inputs[part.input] for part in loop.slices)

    def _found(self, node: Node) -> KeyedCall | None:
        if node.regions or has_opaque_operand(self.graph, node):
            return keyed_call(self.graph, node, self._environment, self._binding)
        key = call_key(self.graph, node)
        if key not in self._known:
            self._known[key] = keyed_call(self.graph, node, self._environment, self._binding)
        return self._known[key]


def keyed_call(graph: Graph, node: Node, environment: str, binding: Binding) -> KeyedCall | None:
    """The call of one node; None for what is no operation of the framework (loops, literals, numbers).

    `environment` is everything beside the call that costs depend on; part of every key.
    """
    if node.regions or node.op == CONSTANT_OP or is_host_arithmetic(graph, node):
        return None
    call = op_call(graph, node, binding)
    return KeyedCall(digest(f"{environment}: {call}"), call)


class LatelyTouched:
    """Plays the calls of a graph in order, under a binding, and counts the bytes that they touch.

    An operand is still in the caches when at most `cache_bytes` were touched since.
    """

    def __init__(self, graph: Graph, binding: Binding, cache_bytes: int) -> None:
        self._graph, self.binding, self.cache_bytes = graph, binding, cache_bytes
        self._touched_bytes = 0
        self._at: dict[int, int] = {}

    def slots(self, node: Node) -> tuple[int, ...]:
        """Positions among the node's inputs of what is still in the caches; then plays its call. O(size of the node)."""
        graph = self._graph
        if is_pure_view(graph, node) or is_host_arithmetic(graph, node):
            return ()
        storages = [graph.values[v].storage for v in node.inputs]
        oldest = self._touched_bytes - self.cache_bytes
        near = tuple(
            i for i, s in enumerate(storages) if s is not None and self._at.get(s, oldest - 1) >= oldest
        )
        touched = {s for v in (*node.inputs, *node.outputs) if (s := graph.values[v].storage) is not None}
        sizes = {s: graph.storages[s].nbytes.evaluate(self.binding) for s in touched}
        self._touched_bytes += sum(sizes.values())
        # What is larger than the caches pushes its own front out.
        self._at.update({s: self._touched_bytes for s, n in sizes.items() if n <= self.cache_bytes})
        return near

    def forget(self, values: Iterable[int]) -> None:
        """What is seen under these names from now on is other data."""
        for value in values:
            storage = self._graph.values[value].storage
            if storage is not None:
                self._at.pop(storage, None)
