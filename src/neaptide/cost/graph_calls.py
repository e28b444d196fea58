"""The calls of a graph with their keys, and which of them read something that is not what the graph says."""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable, Iterator
from dataclasses import dataclass, replace

from neaptide.analysis.alias import is_pure_view
from neaptide.analysis.loops import Binding, trips
from neaptide.cost.model import is_host_arithmetic
from neaptide.cost.op_key import OpCall, OpRecord, OutputFacts, call_key, digest, has_opaque_operand, op_call
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Loop, Node
from neaptide.ir.values import Value
from neaptide.ops.structural import CONSTANT_OP

FindRecord = Callable[[str], OpRecord | None]


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
    """Calls of a graph by node id; None for what is no operation of the framework (loops, literals, numbers).

    Each is worked out when it is first asked for.

    Args:
        environment: everything beside the call that costs depend on; part of every key.
        known: calls of other graphs under the same environment and binding; those of this one are added.
    """

    def __init__(
        self, graph: Graph, environment: str, binding: Binding, known: KeyedCalls | None = None
    ) -> None:
        self.graph = graph
        self._environment = environment
        self._binding = binding
        self._known: KeyedCalls = {} if known is None else known
        self._plain: dict[int, KeyedCall | None] = {}

    def plain(self, number: int) -> KeyedCall | None:
        """The call of a node whose operands are what the graph says."""
        if number not in self._plain:
            self._plain[number] = self._found(self.graph.nodes[number])
        return self._plain[number]

    def resolved(self, find: FindRecord) -> ResolvedCalls:
        """Calls by node; where an operand turned out to be other than the graph says, its producer makes it.

        A result of such a call is not followed any further.

        Args:
            find: what is known of a call, by key; what it finds must not change.
        """
        return ResolvedCalls(self, find)

    def distinct(self, find: FindRecord) -> Iterator[KeyedCall]:
        """Every call once, those in loops included."""
        seen: set[str] = set()
        for placed in self.placed(find):
            if placed.keyed.key not in seen:
                seen.add(placed.keyed.key)
                yield placed.keyed

    def placed(self, find: FindRecord, cache_bytes: int = 0) -> Iterator[PlacedCall]:
        """The calls in program order; of a loop, those of one trip of each kind of trip.

        Where it matters what is near, the first trip stands for itself, and another one for all others of its kind: what
        all trips share is near in those, and in a shorter last one.

        Args:
            cache_bytes: what a program touched within so many bytes is near; with none, nothing is.
        """
        return self._placed(find, cache_bytes, LatelyTouched(self.graph, self._binding, cache_bytes))

    def _placed(self, find: FindRecord, cache_bytes: int, touched: LatelyTouched) -> Iterator[PlacedCall]:
        resolved = self.resolved(find)
        for node in self.graph.nodes:
            near = touched.slots(node) if cache_bytes else ()
            if (keyed := resolved[node.id]) is not None:
                yield PlacedCall(keyed, near)
            for loop in node.regions:
                yield from self._in_trips(node, loop, cache_bytes)

    def _in_trips(self, node: Node, loop: Loop, cache_bytes: int) -> Iterator[PlacedCall]:
        touched = LatelyTouched(loop.body, self._binding, cache_bytes)
        for times, sizes in _played_trips(trips(self.graph, node, loop, self._binding), cache_bytes):
            inside = GraphCalls(loop.body, self._environment, sizes)
            touched.binding = sizes
            for placed in inside._placed(lambda _key: None, cache_bytes, touched):
                yield replace(placed, times=times * placed.times)
            touched.forget(loop.body.inputs[part.input] for part in loop.slices)

    def made_by(self, number: int, opaque: Container[int]) -> KeyedCall | None:
        """The call of a node some of whose operands are made by their producers."""
        node = self.graph.nodes[number]
        return keyed_call(self.graph, node, self._environment, self._binding, opaque)

    def differs(self, value: Value, facts: OutputFacts) -> bool:
        """Whether a result is not what the graph says."""
        shape = tuple(n.evaluate(self._binding) for n in value.shape)
        return value.storage is not None and (facts.dtype, facts.shape) != (value.dtype, shape)

    def _found(self, node: Node) -> KeyedCall | None:
        if node.regions or has_opaque_operand(self.graph, node):
            return self.made_by(node.id, ())
        key = call_key(self.graph, node)
        if key not in self._known:
            self._known[key] = self.made_by(node.id, ())
        return self._known[key]


def _played_trips(kinds: Iterable[tuple[int, Binding]], cache_bytes: int) -> Iterator[tuple[int, Binding]]:
    """Which trips are played: for how many each stands, and its sizes. Only the first one of all finds nothing near."""
    for position, (count, sizes) in enumerate(kinds):
        if not cache_bytes:
            yield 1, sizes
            continue
        first = 0 if position else 1
        if first:
            yield first, sizes
        if count > first:
            yield count - first, sizes


class ResolvedCalls:
    """Calls of a graph by node id, as `GraphCalls.resolved` means them."""

    def __init__(self, calls: GraphCalls, find: FindRecord) -> None:
        self._calls, self._find = calls, find
        self._by_node: dict[int, KeyedCall | None] = {}
        self._opaque: dict[int, bool] = {}

    def __getitem__(self, number: int) -> KeyedCall | None:
        """The call of a node. O(size of the node and of those that make its operands), once."""
        if number not in self._by_node:
            inputs = self._calls.graph.nodes[number].inputs
            is_plain = not any(value in self for value in inputs)
            found = self._calls.plain(number) if is_plain else self._calls.made_by(number, self)
            self._by_node[number] = found
        return self._by_node[number]

    def __contains__(self, value: object) -> bool:
        """Whether a value turned out to be other than the graph says."""
        assert isinstance(value, int)
        if value not in self._opaque:
            self._opaque[value] = self._is_opaque(value)
        return self._opaque[value]

    def _is_opaque(self, value: int) -> bool:
        graph = self._calls.graph
        producer = graph.producer(value)
        keyed = None if producer is None else self._calls.plain(producer)
        record = None if keyed is None or keyed.call.producers else self._find(keyed.key)
        if producer is None or record is None or record.failure:
            return False
        facts = record.outputs[graph.nodes[producer].outputs.index(value)]
        return facts is not None and self._calls.differs(graph.values[value], facts)


def keyed_call(
    graph: Graph, node: Node, environment: str, binding: Binding, opaque: Container[int] = ()
) -> KeyedCall | None:
    """The call of one node; None for what is no operation of the framework. `opaque` as in `op_call`."""
    if node.regions or node.op == CONSTANT_OP or is_host_arithmetic(graph, node):
        return None
    call = op_call(graph, node, binding, opaque)
    return KeyedCall(digest(f"{environment}: {call.text()}"), call)


class LatelyTouched:
    """Plays the calls of a graph in order and counts the bytes that they touch.

    Args:
        cache_bytes: an operand is still in the caches when at most so many bytes were touched since.

    Attributes:
        binding: values of symbolic dims of what is played next; those of the trips of a loop differ.
    """

    def __init__(self, graph: Graph, binding: Binding, cache_bytes: int) -> None:
        self._graph, self.binding, self._cache_bytes = graph, binding, cache_bytes
        self._touched_bytes = 0
        self._at: dict[int, int] = {}

    def slots(self, node: Node) -> tuple[int, ...]:
        """Positions among the node's inputs of what is still in the caches; then plays its call. O(size of the node)."""
        graph = self._graph
        if is_pure_view(graph, node) or is_host_arithmetic(graph, node):
            return ()
        storages = [graph.values[v].storage for v in node.inputs]
        oldest = self._touched_bytes - self._cache_bytes
        near = tuple(
            i for i, s in enumerate(storages) if s is not None and self._at.get(s, oldest - 1) >= oldest
        )
        touched = {s for v in (*node.inputs, *node.outputs) if (s := graph.values[v].storage) is not None}
        sizes = {s: graph.storages[s].nbytes.evaluate(self.binding) for s in touched}
        self._touched_bytes += sum(sizes.values())
        # What is larger than the caches pushes its own front out.
        self._at.update({s: self._touched_bytes for s, n in sizes.items() if n <= self._cache_bytes})
        return near

    def forget(self, values: Iterable[int]) -> None:
        """What is seen under these names from now on is other data."""
        for value in values:
            storage = self._graph.values[value].storage
            if storage is not None:
                self._at.pop(storage, None)
