"""GraphEdit: a changed copy of a graph, for rewrites.

While editing, what a node reads, writes and aliases is held by *value*, not by storage and version, so it follows
when uses are replaced. `finish` works storages and versions out again from the order of the nodes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush

from neaptide.errors import VerifyError
from neaptide.ir.edits.edited import Edited, NodeDraft
from neaptide.ir.edits.finish_edit import FinishedEdit
from neaptide.ir.graph import Graph, Segment
from neaptide.ir.values import Kind, Storage, Value, contiguous_strides
from neaptide.symbolic.dims import Dim
from neaptide.symbolic.size_expr import SizeExpr

_ZERO = SizeExpr.const(0)

__all__ = ["Edited", "GraphEdit", "NodeDraft"]


class GraphEdit:
    """Collects changes to a graph; `finish` makes the changed graph.

    Nodes are called by their id in the original graph, inserted ones by the handle that `insert_*` returns; values by
    their id in the original graph, new ones by the id that `fresh`, `alias` and `scalar` return.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._values: list[Value] = list(graph.values)
        self._storages: list[Storage] = list(graph.storages)
        self._alias: dict[
            int, int | None
        ] = {}  # output -> the input whose storage it shares; old ones once asked for
        self._shown: set[int] = set()  # values that have come to share the storage of another input
        self._drafts: dict[
            int, NodeDraft | None
        ] = {}  # by handle, of nodes that are new, changed or (None) removed
        self._handles = len(graph.nodes)
        self._before: dict[int, list[int]] = defaultdict(list)
        self._after: dict[int, list[int]] = defaultdict(list)
        self._anchor: dict[int, int] = {}  # of inserted and moved nodes: beside which one they are
        self._touched: set[int] = set()  # handles
        self._bodies: dict[int, Edited] = {}  # by handle, of loops that were given another body
        self._outputs = list(graph.outputs)
        self._dims = graph.dims
        self._names = {value.name: 0 for value in graph.values}  # with the number last tried for a duplicate
        self._users: dict[int, set[int]] = {}  # by value, once asked for
        self._users_before: list[list[int]] | None = None

    def draft(self, node: int) -> NodeDraft:
        """The node as it is now.

        Raises:
            VerifyError: it has been removed.
        """
        if node not in self._drafts:
            return NodeDraft.of(self.graph, self.graph.nodes[node])
        found = self._drafts[node]
        if found is None:
            raise VerifyError(f"node {node} has been removed")
        return found

    def value(self, number: int) -> Value:
        """An old value, or a new one as it was made."""
        return self._values[number]

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
        self._shown.add(number)
        return number

    def place_on(self, value: int, operand: int) -> None:
        """Have a result that had bytes of its own begin where an operand of its node begins, in that one's storage.

        It keeps its shape and strides. Views and in-place results of it follow. Its node must be one that overwrites the
        operand or looks at it.
        """
        self._values[value] = replace(self._values[value], offset=self._values[operand].offset)
        self._alias[value] = operand
        self._shown.add(value)

    def scalar(self, name: str, dtype: str) -> int:
        """A new host scalar."""
        return self._new_value(Value(0, name, dtype))

    def declare(self, dim: Dim) -> None:
        """A dim that sizes of new nodes use. A graph that declares none leaves all its dims open."""
        self._dims = (*self._dims, dim)

    def insert_before(self, anchor: int, draft: NodeDraft) -> int:
        """Put a node right before another; of several before one anchor, the first inserted comes first. Its handle."""
        return self._insert(anchor, draft, self._before)

    def insert_after(self, anchor: int, draft: NodeDraft) -> int:
        """Put a node after another; of several after one anchor, the first inserted comes first. Its handle."""
        return self._insert(anchor, draft, self._after)

    def remove(self, node: int) -> None:
        """Take a node out. At the end nothing may use its outputs any more."""
        now = self.draft(node) if node in self._drafts else self.graph.nodes[node]
        for value in now.inputs:
            self._users_of(value).discard(node)
        self._drafts[node] = None

    def replace_node(self, node: int, draft: NodeDraft) -> None:
        """Put another node in the place of one; outputs that both make keep their uses."""
        self.remove(node)
        self._drafts[node] = draft
        self._touched.add(node)
        for value in draft.inputs:
            self._users_of(value).add(node)

    def replace_body(self, node: int, body: Edited) -> None:
        """Give a loop its body after a change. What it is handed, and how its results are put together, stays."""
        draft = self.draft(node)
        (loop,) = draft.regions
        loop = replace(loop, body=body.graph)
        self._bodies[node] = self._bodies[node].then(body) if node in self._bodies else body
        reads, writes = loop.read_inputs(draft.inputs), loop.written_inputs(draft.inputs)
        self.replace_node(node, replace(draft, reads=tuple(reads), writes=tuple(writes), regions=(loop,)))

    def replace_uses(
        self, old: int, new: int, nodes: Iterable[int] | None = None, *, outputs: bool = True
    ) -> None:
        """Use `new` wherever `old` is used; views and in-place results follow to the storage of `new`.

        Args:
            nodes: only in these nodes; None means all but the producer of `new`.
        """
        known = self._users_of(old)
        users = set(known) if nodes is None else set(nodes) & known
        for user in sorted(users):
            draft = self.draft(user)
            if nodes is None and new in draft.outputs:
                continue
            self.replace_node(user, draft.with_input(old, new))
            for value in draft.outputs:
                if self._alias_of(value) == old:
                    self._alias[value] = new
                    self._shown.add(value)
        if outputs:
            self._outputs = [new if value == old else value for value in self._outputs]

    def move_after(self, node: int, anchor: int) -> None:
        """Take a node from its place to after another; it joins the segment that is there.

        Raises:
            VerifyError: the anchor was placed beside the node itself.
        """
        self._move(node, anchor, self._after)

    def move_before(self, node: int, anchor: int) -> None:
        """As `move_after`, to before another node; of several before one anchor, the first moved or inserted comes first."""
        self._move(node, anchor, self._before)

    def finish(self, name: str | None = None) -> Edited:
        """The changed graph: ids dense in the old order with new ones last, versions recomputed, verified. O(size).

        Objects that come out unchanged are shared with the original graph.

        Raises:
            VerifyError: the changes break a rule, such as a use of a value that is no longer made.
        """
        order = list(self._order())
        self._place_aliases(order)
        made = FinishedEdit(self.graph, self._values, self._storages, order, self._drafts, self._touched).run(
            self._outputs, self._segments(order), self.graph.name if name is None else name, self._dims
        )
        bodies = {new: self._bodies[node] for new, node in enumerate(order) if node in self._bodies}
        return replace(made, bodies=bodies) if bodies else made

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
        handle = self._handles
        self._handles += 1
        self._drafts[handle] = draft
        for value in draft.inputs:
            self._users_of(value).add(handle)
        return handle

    def _users_of(self, value: int) -> set[int]:
        """Handles of the nodes that name a value as an input."""
        if value not in self._users:
            if self._users_before is None:
                self._users_before = self.graph.consumers()
            is_old = value < len(self._users_before)
            self._users[value] = set(self._users_before[value]) if is_old else set()
        return self._users[value]

    def _alias_of(self, value: int) -> int | None:
        """The input of its node whose storage a value shares; None where it has its own."""
        if value not in self._alias:
            producer = self.graph.producer(value) if value < len(self.graph.values) else None
            values = self.graph.values
            self._alias[value] = (
                None
                if producer is None or values[value].storage is None
                else next(
                    (
                        operand
                        for operand in self.graph.nodes[producer].inputs
                        if values[operand].storage == values[value].storage
                    ),
                    None,
                )
            )
        return self._alias[value]

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

    def _order(self) -> Iterator[int]:
        """Handles of the nodes that are left, in the new order. A node may be placed by one that is itself placed by another, to any depth."""
        for node in self.graph.nodes:
            waiting = [] if node.id in self._anchor else [(node.id, False)]
            while waiting:
                handle, opened = waiting.pop()
                if opened:
                    if self._drafts.get(handle, self) is not None:
                        yield handle
                    continue
                waiting += [(inserted, False) for inserted in reversed(self._after.get(handle, ()))]
                waiting.append((handle, True))
                waiting += [(inserted, False) for inserted in reversed(self._before.get(handle, ()))]

    def _place_aliases(self, order: list[int]) -> None:
        """Give what shares another storage than before that storage, and what shares its in turn, front to back."""
        place = {handle: position for position, handle in enumerate(order)}
        waiting = [
            (place[handle], value)
            for handle in self._touched
            if handle in place
            for value in self.draft(handle).outputs
            if value in self._shown
        ]
        heapify(waiting)
        while waiting:
            position, value = heappop(waiting)
            alias = self._alias_of(value)
            assert alias is not None
            storage = self._values[alias].storage
            if storage == self._values[value].storage:
                continue
            self._values[value] = replace(self._values[value], storage=storage)
            users = self._users_of(value)
            self._touched.update((order[position], *users))
            for user in users:
                if place.get(user, -1) > position:
                    for made in self.draft(user).outputs:
                        if self._alias_of(made) == value:
                            heappush(waiting, (place[user], made))

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
