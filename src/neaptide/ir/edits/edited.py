"""NodeDraft: a node while its graph is edited. Edited: the changed graph, and where its parts come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Arg, Loop, Node, Source

_NOWHERE = Source()


@dataclass(frozen=True, slots=True)
class NodeDraft:
    """A node whose effects name values.

    Attributes:
        inputs: value ids to which the arguments refer.
        outputs: values made with `GraphEdit.fresh`, `alias` or `scalar`, or outputs of the node that it replaces.
        reads: inputs whose data is needed; None means all.
        writes: inputs whose storage is overwritten.
        results: how the outputs lie in what the operation returns, as in `Node`.
    """

    op: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    args: tuple[Arg, ...] = ()
    kwargs: tuple[tuple[str, Arg], ...] = ()
    reads: tuple[int, ...] | None = None
    writes: tuple[int, ...] = ()
    rng: str | None = None
    collective: str | None = None
    host: bool = False
    source: Source = _NOWHERE
    regions: tuple[Loop, ...] = ()
    results: Arg = None

    @staticmethod
    def of(graph: Graph, node: Node) -> NodeDraft:
        """A node of a graph."""
        storage_of = [graph.values[v].storage for v in node.inputs]
        first = dict(zip(reversed(storage_of), reversed(node.inputs), strict=True))
        seen: dict[int | None, list[int]] = {}
        for value, storage in zip(node.inputs, storage_of, strict=True):
            seen.setdefault(storage, []).append(value)
        in_order = [v for a in node.effects.reads for v in seen.get(a.storage, ())]
        return NodeDraft(
            node.op,
            node.inputs,
            node.outputs,
            node.args,
            node.kwargs,
            tuple(dict.fromkeys(in_order)),
            tuple(first[a.storage] for a in node.effects.writes),
            node.effects.rng,
            node.effects.collective,
            node.effects.host,
            node.source,
            node.regions,
            node.results,
        )

    def with_input(self, old: int, new: int) -> NodeDraft:
        """The draft with `new` in place of the input `old`."""

        def swapped(values: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(new if v == old else v for v in values)

        return replace(
            self,
            inputs=swapped(self.inputs),
            reads=None if self.reads is None else swapped(self.reads),
            writes=swapped(self.writes),
        )


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
