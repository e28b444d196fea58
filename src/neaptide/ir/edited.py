"""Edited: a changed graph, and where its parts come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from neaptide.ir.graph import Graph


@dataclass(frozen=True, slots=True)
class Edited:
    """A changed graph, and where its parts come from.

    Nodes that are not `touched` follow each other as before, and are what they were but for ids and for the versions
    that they read and write: what is known of them can be carried over.

    Attributes:
        node_of: by node id, the id of the node before; -1 for a new one. A node that was replaced in its place comes
            from the node that was there.
        value_of: by value id, likewise.
        storage_of: by storage id, likewise.
        touched: nodes that are new, were replaced or moved, or see another storage than before; ascending.
        bodies: by node whose loop was given another body, what became of the body.
    """

    graph: Graph
    node_of: tuple[int, ...]
    value_of: tuple[int, ...]
    storage_of: tuple[int, ...]
    touched: tuple[int, ...]
    bodies: Mapping[int, Edited] = field(default_factory=dict)

    @staticmethod
    def unchanged(graph: Graph) -> Edited:
        """A graph as it is. O(size)."""
        sizes = (len(graph.nodes), len(graph.values), len(graph.storages))
        nodes, values, storages = (tuple(range(size)) for size in sizes)
        return Edited(graph, nodes, values, storages, ())

    def then(self, later: Edited) -> Edited:
        """Both changes as one; `later` was made to this graph. O(size)."""
        first = set(self.touched)
        touched = {node for node, old in enumerate(later.node_of) if old in first}
        return Edited(
            later.graph,
            _composed(self.node_of, later.node_of),
            _composed(self.value_of, later.value_of),
            _composed(self.storage_of, later.storage_of),
            tuple(sorted(touched.union(later.touched))),
            self._bodies_after(later),
        )

    def _bodies_after(self, later: Edited) -> dict[int, Edited]:
        found = {node: self.bodies[old] for node, old in enumerate(later.node_of) if old in self.bodies}
        for node, made in later.bodies.items():
            found[node] = found[node].then(made) if node in found else made
        return found


def _composed(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(first[old] if old >= 0 else -1 for old in second)
