"""The graph that an edit comes to: dense ids, versions counted again, verified where it has changed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from neaptide.errors import VerifyError
from neaptide.ir.edits.edited import Edited, NodeDraft
from neaptide.ir.graph import Graph, Segment
from neaptide.ir.nodes import Access, Effects, Node
from neaptide.ir.values import Storage, Value
from neaptide.ir.verify import verify_edited
from neaptide.symbolic.dims import Dim


class FinishedEdit:
    """Makes the changed graph. O(size), with little to do for what has not changed.

    Args:
        values: old and new ones by their id while editing, with the storages that they see now.
        drafts: by handle, of nodes that are new or changed.
        touched: handles of nodes that are more than renamed.
    """

    def __init__(
        self,
        graph: Graph,
        values: Sequence[Value],
        storages: Sequence[Storage],
        order: Sequence[int],
        drafts: Mapping[int, NodeDraft | None],
        touched: Collection[int],
    ) -> None:
        self._graph, self._values, self._storages = graph, values, storages
        self._order, self._drafts = order, drafts
        self._touched = touched
        self._version: dict[int, int] = defaultdict(int)  # of each storage, by its id while editing
        self._version_of: dict[int, int] = {}  # that a value sees
        self._value_id: dict[int, int] = {}
        self._storage_id: dict[int, int] = {}

    def run(
        self, outputs: Sequence[int], segments: tuple[Segment, ...], name: str, dims: tuple[Dim, ...]
    ) -> Edited:
        """The changed graph, and where its parts come from.

        Raises:
            VerifyError: the changes break a rule.
        """
        before = self._graph
        self._name_all(outputs)
        nodes = tuple(self._node(number, handle) for number, handle in enumerate(self._order))
        values = tuple(self._value(old, new) for old, new in self._value_id.items())
        graph = Graph(
            nodes,
            values,
            tuple(self._storage(old, new) for old, new in self._storage_id.items()),
            tuple(self._value_id[value] for value in before.inputs),
            tuple(self._value_id[value] for value in outputs),
            segments,
            name,
            dims,
            before.relations,
        )
        touched = tuple(new for new, handle in enumerate(self._order) if handle in self._touched)
        count = len(before.values)
        is_new = {
            new
            for old, new in self._value_id.items()
            if old >= count or self._values[old].storage != before.values[old].storage
        }
        verify_edited(graph, frozenset(touched), is_new)
        return Edited(
            graph,
            _before(self._order, len(before.nodes)),
            _before(self._value_id, len(before.values)),
            _before(self._storage_id, len(before.storages)),
            touched,
        )

    def _of(self, handle: int) -> NodeDraft | Node:
        draft = self._drafts.get(handle)
        return self._graph.nodes[handle] if draft is None else draft

    def _name_all(self, outputs: Sequence[int]) -> None:
        """New ids of all values and storages that are left."""
        made = set(self._graph.inputs).union(*(self._of(handle).outputs for handle in self._order))
        for handle in self._order:
            node = self._of(handle)
            if not made.issuperset(node.inputs):
                value = next(v for v in node.inputs if v not in made)
                raise VerifyError(f"%{self._values[value].name} is used by {node.op}, but not made")
        if lost := [self._values[value].name for value in outputs if value not in made]:
            raise VerifyError(f"output %{lost[0]} is not made any more")
        self._value_id = {old: new for new, old in enumerate(sorted(made))}
        seen = {s for value in made if (s := self._values[value].storage) is not None}
        self._storage_id = {old: new for new, old in enumerate(sorted(seen))}

    def _value(self, old: int, new: int) -> Value:
        was = self._values[old]
        storage = None if was.storage is None else self._storage_id[was.storage]
        version = self._version_of.get(old, 0)
        if (was.id, was.storage, was.version) == (new, storage, version):
            return was
        return replace(was, id=new, storage=storage, version=version)

    def _storage(self, old: int, new: int) -> Storage:
        was = self._storages[old]
        return was if old == new else replace(was, id=new)

    def _node(self, number: int, handle: int) -> Node:
        """A node under its new ids; the old one where nothing of it is new."""
        was = self._graph.nodes[handle] if handle < len(self._graph.nodes) else None
        now = self._of(handle)
        if isinstance(now, Node) and handle in self._touched:
            # Its values see other storages than when it was recorded.
            now = NodeDraft.of(self._graph, now)
        effects = self._effects(now)
        self._see(now.outputs)
        made = Node(
            number,
            now.op,
            self._ids(now.inputs),
            self._ids(now.outputs),
            now.args,
            now.kwargs,
            effects,
            now.source,
            now.regions,
            now.results,
        )
        return was if was is not None and made == was else made

    def _effects(self, now: NodeDraft | Node) -> Effects:
        if isinstance(now, Node):
            said: Effects | NodeDraft = now.effects
            reads = [access.storage for access in now.effects.reads]
            writes = [access.storage for access in now.effects.writes]
        else:
            said = now
            reads = self._seen_by(now.inputs if now.reads is None else now.reads)
            writes = self._seen_by(now.writes)
        read = tuple(Access(self._storage_id[s], self._version[s]) for s in reads)
        for storage in writes:
            self._version[storage] += 1
        written = tuple(Access(self._storage_id[s], self._version[s]) for s in writes)
        return Effects(read, written, said.rng, said.collective, said.host)

    def _see(self, outputs: Iterable[int]) -> None:
        for value in outputs:
            seen = self._values[value].storage
            if seen is not None and (version := self._version.get(seen)):
                self._version_of[value] = version

    def _ids(self, values: tuple[int, ...]) -> tuple[int, ...]:
        return tuple([self._value_id[value] for value in values])

    def _seen_by(self, values: Iterable[int]) -> list[int]:
        found = (self._values[value].storage for value in values)
        return list(dict.fromkeys(storage for storage in found if storage is not None))


def _before(ids: Iterable[int], count: int) -> tuple[int, ...]:
    """What was there before keeps its id while editing; what is new has later ones."""
    return tuple(old if old < count else -1 for old in ids)
