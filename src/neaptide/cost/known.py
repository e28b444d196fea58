"""What a cost model says of one graph, as plain data: for a process that knows neither the framework nor the machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property

from neaptide.analysis.loops import NO_BODIES, Binding, Bodies, trips
from neaptide.analysis.profile_bytes import loop_workspace_bytes
from neaptide.cost.loops import known_in_loop, loop_seconds
from neaptide.cost.model import CostModel
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node

Sizes = tuple[tuple[str, int], ...]
"""A binding that can be a key."""


@dataclass(frozen=True, slots=True)
class KnownNodes:
    """Seconds and workspace of the nodes of a graph, or of a body, under some sizes.

    Attributes:
        seconds: by node id; zero for loops, whose seconds depend on the order of their bodies.
    """

    graph: Graph
    sizes: Sizes
    seconds: tuple[float, ...]
    workspace: tuple[int, ...]
    storages: Mapping[int, int]


@dataclass(frozen=True)
class KnownCost:
    """The numbers of another cost model for one graph and for the bodies in it; it knows no other graph.

    Attributes:
        sizes: values of symbolic dims around all loops; in the body of a loop those of a trip.
    """

    known: tuple[KnownNodes, ...]
    sizes: Sizes
    call_s: float
    is_measured: bool
    description: str

    def __reduce__(self) -> tuple[type[KnownCost], tuple[object, ...]]:
        """Graphs are looked up by their ids, which are other ones in another process."""
        return KnownCost, tuple(getattr(self, made.name) for made in fields(self))

    @cached_property
    def _by_graph(self) -> Mapping[tuple[int, Sizes], KnownNodes]:
        return {(id(nodes.graph), nodes.sizes): nodes for nodes in self.known}

    @staticmethod
    def of(cost: CostModel, graph: Graph, binding: Binding) -> KnownCost:
        """What a cost model says of a graph. O(nodes, those in bodies for each kind of trip)."""
        known = {(id(nodes.graph), nodes.sizes): nodes for nodes in _levels(cost, graph, binding)}
        return KnownCost(
            tuple(known.values()),
            _key(binding),
            cost.call_s,
            cost.is_measured,
            cost.describe(),
        )

    def seconds(self, graph: Graph, node: Node, bodies: Bodies = NO_BODIES) -> float:
        """Seconds of one execution; of a loop, of all its trips, whose order is that of `bodies`."""
        if node.regions:
            binding = dict(self.sizes)
            return loop_seconds(graph, node, binding, self._seconds, bodies, call_s=self.call_s)
        return self._by_graph[id(graph), self.sizes].seconds[node.id]

    def workspace_bytes(self, graph: Graph, node: Node, bodies: Bodies = NO_BODIES) -> int:
        """Most bytes allocated during one execution; of a loop what its body holds at its peak."""
        if node.regions:
            binding = dict(self.sizes)
            known = known_in_loop(graph, node, binding, self._workspace, self._storages)
            return loop_workspace_bytes(graph, node, binding, known, bodies)
        return self._by_graph[id(graph), self.sizes].workspace[node.id]

    def under(self, sizes: Binding) -> KnownCost:
        """The same for the body of a loop in a trip."""
        return replace(self, sizes=_key(sizes))

    def storage_bytes(self, graph: Graph, nodes: Iterable[Node] | None = None) -> Mapping[int, int]:
        """Bytes, by storage id, of those storages of the graph whose real size is not what the graph says."""
        known = self._by_graph[id(graph), self.sizes].storages
        if nodes is None:
            return known
        created = {storage for node in nodes for storage in graph.created_storages(node)}
        return {storage: nbytes for storage, nbytes in known.items() if storage in created}

    def describe(self) -> str:
        """Where the numbers come from."""
        return self.description

    def _seconds(self, graph: Graph, node: Node, binding: Binding) -> float:
        return self._by_graph[id(graph), _key(binding)].seconds[node.id]

    def _workspace(self, graph: Graph, node: Node, binding: Binding) -> int:
        return self._by_graph[id(graph), _key(binding)].workspace[node.id]

    def _storages(self, graph: Graph, binding: Binding) -> Mapping[int, int]:
        return self._by_graph[id(graph), _key(binding)].storages


def _levels(cost: CostModel, graph: Graph, binding: Binding) -> Iterator[KnownNodes]:
    """The numbers of a graph, and of all bodies in it."""
    yield KnownNodes(
        graph,
        _key(binding),
        tuple(0.0 if node.regions else cost.seconds(graph, node) for node in graph.nodes),
        tuple(0 if node.regions else cost.workspace_bytes(graph, node) for node in graph.nodes),
        dict(cost.storage_bytes(graph)),
    )
    for node in graph.nodes:
        for loop in node.regions:
            for _, sizes in trips(graph, node, loop, binding):
                yield from _levels(cost.under(sizes), loop.body, sizes)


def _key(binding: Binding) -> Sizes:
    return tuple(sorted(binding.items()))
