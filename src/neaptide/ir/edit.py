"""GraphEdit: a changed copy of a graph, for rewrites.

While editing, what a node reads, writes and aliases is held by *value*, not by storage and version, so it follows
when uses are replaced. `finish` works storages and versions out again from the order of the nodes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from neaptide.errors import VerifyError
from neaptide.ir.graph import Graph, Segment
from neaptide.ir.nodes import Access, Arg, Effects, Loop, Node, Source
from neaptide.ir.values import Kind, Storage, Value, contiguous_strides
from neaptide.ir.verify import verify
from neaptide.symbolic.size_expr import SizeExpr

_ZERO = SizeExpr.const(0)
_NOWHERE = Source()
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NodeDraft:
    """A node whose effects name values.

    Attributes:
        op: registry name.
        inputs: value ids to which the arguments refer.
        outputs: values made with `GraphEdit.fresh`, `alias` or `scalar`, or outputs of the node that it replaces.
        args: positional arguments.
        kwargs: keyword arguments, sorted.
        reads: inputs whose data is needed; None means all.
        writes: inputs whose storage is overwritten.
        rng: random stream that is advanced.
        collective: process group.
        host: it talks to the host.
        source: place in the user's program.
        regions: empty, or one loop.
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
        graph: after the changes.
        node_of: by node id, the id of the node before; -1 for a new one. A node that was replaced in its place comes
            from the node that was there.
        value_of: by value id, likewise.
        storage_of: by storage id, likewise.
        touched: nodes that are new, were replaced or moved, or see another storage than before; ascending.
    """

    graph: Graph
    node_of: tuple[int, ...]
    value_of: tuple[int, ...]
    storage_of: tuple[int, ...]
    touched: tuple[int, ...]

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
        )


def _composed(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(first[old] if old >= 0 else -1 for old in second)


class GraphEdit:
    """Collects changes to a graph; `finish` makes the changed graph.

    Nodes are called by their id in the original graph, inserted ones by the handle that `insert_*` returns; values by
    their id in the original graph, new ones by the id that `fresh`, `alias` and `scalar` return.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._values: list[Value] = list(graph.values)
        self._storages: list[Storage] = list(graph.storages)
        self._alias: dict[int, int] = {}  # output -> the input whose storage it shares
        self._drafts: list[NodeDraft | None] = []
        self._before: dict[int, list[int]] = defaultdict(list)
        self._after: dict[int, list[int]] = defaultdict(list)
        self._anchor: dict[int, int] = {}  # of inserted and moved nodes: beside which one they are
        self._touched: set[int] = set()  # handles
        self._outputs = list(graph.outputs)
        self._names = {value.name: 0 for value in graph.values}  # with the number last tried for a duplicate
        self._users: dict[int, set[int]] = defaultdict(set)
        for node in graph.nodes:
            self._add(self._draft_of(node))

    def draft(self, node: int) -> NodeDraft:
        """The node as it is now.

        Raises:
            VerifyError: it has been removed.
        """
        found = self._drafts[node]
        if found is None:
            raise VerifyError(f"node {node} has been removed")
        return found

    def fresh(
        self,
        name: str,
        dtype: str,
        shape: Sequence[SizeExpr],
        *,
        device: str = "cpu",
        kind: Kind = Kind.TEMPORARY,
        strides: Sequence[SizeExpr] | None = None,
        nbytes: SizeExpr | None = None,
    ) -> int:
        """A new value on a storage of its own, dense unless strides and size are given."""
        extents = tuple(shape)
        steps = contiguous_strides(extents) if strides is None else tuple(strides)
        number = self._new_value(Value(0, name, dtype, extents, steps, _ZERO, len(self._storages)))
        value = self._values[number]
        size = value.nbytes if nbytes is None else nbytes
        self._storages.append(Storage(len(self._storages), size, device, kind, value.name))
        return number

    def alias(
        self,
        name: str,
        dtype: str,
        shape: Sequence[SizeExpr],
        strides: Sequence[SizeExpr],
        offset: SizeExpr,
        *,
        of: int,
    ) -> int:
        """A new value that sees the storage of `of`: a view, or the result of an in-place operation."""
        storage = self._values[of].storage
        number = self._new_value(Value(0, name, dtype, tuple(shape), tuple(strides), offset, storage))
        self._alias[number] = of
        return number

    def scalar(self, name: str, dtype: str) -> int:
        """A new host scalar."""
        return self._new_value(Value(0, name, dtype))

    def insert_before(self, anchor: int, draft: NodeDraft) -> int:
        """Put a node right before another; of several before one anchor, the first inserted comes first. Its handle."""
        return self._insert(anchor, draft, self._before)

    def insert_after(self, anchor: int, draft: NodeDraft) -> int:
        """Put a node after another; of several after one anchor, the first inserted comes first. Its handle."""
        return self._insert(anchor, draft, self._after)

    def remove(self, node: int) -> None:
        """Take a node out. At the end nothing may use its outputs any more."""
        for value in self.draft(node).inputs:
            self._users[value].discard(node)
        self._drafts[node] = None

    def replace_node(self, node: int, draft: NodeDraft) -> None:
        """Put another node in the place of one; outputs that both make keep their uses."""
        self.remove(node)
        self._drafts[node] = draft
        self._touched.add(node)
        for value in draft.inputs:
            self._users[value].add(node)

    def replace_uses(
        self, old: int, new: int, nodes: Iterable[int] | None = None, *, outputs: bool = True
    ) -> None:
        """Use `new` wherever `old` is used; views and in-place results follow to the storage of `new`.

        Args:
            old: value to be replaced.
            new: value of the same dtype and shape.
            nodes: only in these nodes; None means all but the producer of `new`.
            outputs: also among the outputs of the graph.
        """
        users = set(self._users[old]) if nodes is None else set(nodes) & self._users[old]
        for user in sorted(users):
            draft = self.draft(user)
            if nodes is None and new in draft.outputs:
                continue
            self.replace_node(user, draft.with_input(old, new))
            for value in draft.outputs:
                if self._alias.get(value) == old:
                    self._alias[value] = new
        if outputs:
            self._outputs = [new if value == old else value for value in self._outputs]

    def move_before(self, node: int, anchor: int) -> None:
        """Take a node from its place to right before another; it joins the segment that is there.

        Raises:
            VerifyError: the anchor was placed beside the node itself.
        """
        self._move(node, anchor, self._before)

    def move_after(self, node: int, anchor: int) -> None:
        """Take a node from its place to behind another; it joins the segment that is there.

        Raises:
            VerifyError: the anchor was placed beside the node itself.
        """
        self._move(node, anchor, self._after)

    def finish(self, name: str | None = None) -> Edited:
        """The changed graph: ids dense in the old order with new ones last, versions recomputed, verified. O(size).

        Objects that come out unchanged are shared with the original graph.

        Raises:
            VerifyError: the changes break a rule, such as a use of a value that is no longer made.
        """
        order = list(self._order())
        self._place_aliases(order)
        made = set(self.graph.inputs).union(*(self.draft(handle).outputs for handle in order))
        for handle in order:
            for value in self.draft(handle).inputs:
                if value not in made:
                    raise VerifyError(
                        f"%{self._values[value].name} is used by {self.draft(handle).op}, but not made"
                    )
        if lost := [self._values[value].name for value in self._outputs if value not in made]:
            raise VerifyError(f"output %{lost[0]} is not made any more")
        value_id = {old: new for new, old in enumerate(sorted(made))}
        seen = {s for value in made if (s := self._values[value].storage) is not None}
        storage_id = {old: new for new, old in enumerate(sorted(seen))}
        nodes, version_of = self._nodes(order, value_id, storage_id)
        values = []
        for old, new in value_id.items():
            was = self._values[old]
            storage = None if was.storage is None else storage_id[was.storage]
            values.append(_shared(was, replace(was, id=new, storage=storage, version=version_of.get(old, 0))))
        storages = [
            _shared(self._storages[s], replace(self._storages[s], id=new)) for s, new in storage_id.items()
        ]
        graph = Graph(
            tuple(nodes),
            tuple(values),
            tuple(storages),
            tuple(value_id[v] for v in self.graph.inputs),
            tuple(value_id[v] for v in self._outputs),
            self._segments(order),
            self.graph.name if name is None else name,
        )
        verify(graph)
        return Edited(
            graph,
            _before(order, len(self.graph.nodes)),
            _before(value_id, len(self.graph.values)),
            _before(storage_id, len(self.graph.storages)),
            tuple(new for new, handle in enumerate(order) if handle in self._touched),
        )

    # -- in the small

    def _new_value(self, value: Value) -> int:
        number = len(self._values)
        name = value.name
        while name in self._names:
            self._names[value.name] += 1
            name = f"{value.name}_{self._names[value.name]}"
        self._names[name] = 0
        self._values.append(replace(value, id=number, name=name))
        return number

    def _add(self, draft: NodeDraft) -> int:
        self._drafts.append(draft)
        for value in draft.inputs:
            self._users[value].add(len(self._drafts) - 1)
        return len(self._drafts) - 1

    def _insert(self, anchor: int, draft: NodeDraft, side: dict[int, list[int]]) -> int:
        handle = self._add(draft)
        self._touched.add(handle)
        side[anchor].append(handle)
        self._anchor[handle] = anchor
        return handle

    def _move(self, node: int, anchor: int, side: dict[int, list[int]]) -> None:
        place: int | None = anchor
        while place is not None:
            if place == node:
                raise VerifyError(f"node {node} cannot be moved beside node {anchor}, which is placed by it")
            place = self._anchor.get(place)
        if node in self._anchor:
            for places in (self._before, self._after):
                siblings = places[self._anchor[node]]
                if node in siblings:
                    siblings.remove(node)
        side[anchor].append(node)
        self._anchor[node] = anchor
        self._touched.add(node)

    def _draft_of(self, node: Node) -> NodeDraft:
        storage_of = [self._values[v].storage for v in node.inputs]
        first = dict(zip(reversed(storage_of), reversed(node.inputs), strict=True))
        for value in node.outputs:
            storage = self._values[value].storage
            if storage is not None and storage in first:
                self._alias[value] = first[storage]
        in_order = [
            v for a in node.effects.reads for v in node.inputs if self._values[v].storage == a.storage
        ]
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

    def _order(self) -> Iterator[int]:
        """Handles of the nodes that are left, in the new order. A node may be placed by one that is itself placed by another, to any depth."""
        for node in self.graph.nodes:
            waiting = [] if node.id in self._anchor else [(node.id, False)]
            while waiting:
                handle, opened = waiting.pop()
                if opened:
                    if self._drafts[handle] is not None:
                        yield handle
                    continue
                waiting += [(inserted, False) for inserted in reversed(self._after.get(handle, ()))]
                waiting.append((handle, True))
                waiting += [(inserted, False) for inserted in reversed(self._before.get(handle, ()))]

    def _place_aliases(self, order: list[int]) -> None:
        """Give every alias the storage of what it aliases, front to back."""
        for handle in order:
            for value in self.draft(handle).outputs:
                if value in self._alias:
                    storage = self._values[self._alias[value]].storage
                    if storage != self._values[value].storage:
                        self._values[value] = replace(self._values[value], storage=storage)
                        self._touched.update((handle, *self._users[value]))

    def _nodes(
        self, order: list[int], value_id: dict[int, int], storage_id: dict[int, int]
    ) -> tuple[list[Node], dict[int, int]]:
        """The nodes under their new ids, and the version that each value (by its old id) sees."""
        version: dict[int, int] = defaultdict(int)
        version_of: dict[int, int] = {}
        nodes: list[Node] = []
        for handle in order:
            draft = self.draft(handle)
            reads = [Access(storage_id[s], version[s]) for s in self._seen_by(draft.reads, draft.inputs)]
            writes = []
            for storage in self._seen_by(draft.writes, ()):
                version[storage] += 1
                writes.append(Access(storage_id[storage], version[storage]))
            for value in draft.outputs:
                seen = self._values[value].storage
                version_of[value] = 0 if seen is None else version[seen]
            effects = Effects(tuple(reads), tuple(writes), draft.rng, draft.collective, draft.host)
            inputs, outputs = (tuple(value_id[v] for v in vs) for vs in (draft.inputs, draft.outputs))
            made = Node(
                len(nodes),
                draft.op,
                inputs,
                outputs,
                draft.args,
                draft.kwargs,
                effects,
                draft.source,
                draft.regions,
                draft.results,
            )
            nodes.append(_shared(self.graph.nodes[handle], made) if handle < len(self.graph.nodes) else made)
        return nodes, version_of

    def _seen_by(self, values: tuple[int, ...] | None, default: tuple[int, ...]) -> list[int]:
        found = (self._values[v].storage for v in (default if values is None else values))
        return list(dict.fromkeys(s for s in found if s is not None))

    def _segments(self, order: list[int]) -> tuple[Segment, ...]:
        if not self.graph.segments:
            return ()
        places = []
        for handle in order:
            anchor = handle
            while anchor in self._anchor:
                anchor = self._anchor[anchor]
            places.append(anchor)
        result = []
        start = 0
        for segment in self.graph.segments:
            end = start + sum(segment.start <= place < segment.end for place in places)
            result.append(Segment(segment.name, start, end))
            start = end
        return tuple(result)


def _before(ids: Iterable[int], count: int) -> tuple[int, ...]:
    """What was there before keeps its id while editing; what is new has later ones."""
    return tuple(old if old < count else -1 for old in ids)


def _shared(old: T, new: T) -> T:
    return old if old == new else new
