"""NodeDraft: a node while its graph is edited."""

from __future__ import annotations

from dataclasses import dataclass, replace

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
