"""What a cost model says of one graph, as plain data: for a process that knows neither the framework nor the machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import NamedTuple

from neaptide.analysis.loops import Binding, trips
from neaptide.cost.model import CostModel
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node

Sizes = tuple[tuple[str, int], ...]
"""A binding that can be a key."""


class KnownNodes(NamedTuple):
    """What is known of the nodes of a graph, or of a body under some sizes: zero for loops, which the order of bodies decides."""

    graph: Graph
    sizes: Sizes
    seconds: tuple[float, ...]
    workspace: tuple[int, ...]
    storages: Mapping[int, int]  # of another size than the graph says


@dataclass(frozen=True)
class KnownCost(CostModel):
    """The numbers of another cost model for one graph and for the bodies in it; it knows no other graph."""

    known: tuple[KnownNodes, ...]
    binding: Binding
    empty_call_s: float
    is_measured: bool

    def __reduce__(self) -> tuple[type[KnownCost], tuple[object, ...]]:
        """Graphs are looked up by their ids, which are other ones in another process."""
        return KnownCost, tuple(getattr(self, made.name) for made in fields(self))

    @property
    def call_s(self) -> float:
        """Seconds of a call that computes nothing."""
        return self.empty_call_s

    @cached_property
    def _by_graph(self) -> Mapping[tuple[int, Sizes], KnownNodes]:
        return {(id(nodes.graph), nodes.sizes): nodes for nodes in self.known}

    @staticmethod
    def of(cost: CostModel, graph: Graph, binding: Binding) -> KnownCost:
        """What a cost model says of a graph. O(nodes, those in bodies for each kind of trip)."""
        known = {(id(nodes.graph), nodes.sizes): nodes for nodes in _levels(cost, graph, binding)}
        return KnownCost(tuple(known.values()), dict(binding), cost.call_s, cost.is_measured)

    def node_seconds(self, graph: Graph, node: Node, sizes: Binding) -> float:
        """Seconds of one execution of a node that is no loop."""
        return self._of(graph, sizes).seconds[node.id]

    def node_workspace(self, graph: Graph, node: Node, sizes: Binding) -> int:
        """Most bytes that such a node allocates beyond the storages of its operands and results."""
        return self._of(graph, sizes).workspace[node.id]

    def real_sizes(
        self, graph: Graph, sizes: Binding, nodes: Iterable[Node] | None = None
    ) -> Mapping[int, int]:
        """Bytes, by storage id, of those storages of the graph whose real size is not what the graph says."""
        known = self._of(graph, sizes).storages
        if nodes is None:
            return known
        created = {storage for node in nodes for storage in graph.created_storages(node)}
        return {storage: nbytes for storage, nbytes in known.items() if storage in created}

    def _of(self, graph: Graph, sizes: Binding) -> KnownNodes:
        return self._by_graph[id(graph), _key(sizes)]


def _levels(cost: CostModel, graph: Graph, binding: Binding) -> Iterator[KnownNodes]:
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
