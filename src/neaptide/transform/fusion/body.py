"""The body of a group: its operations as a graph of their own, spelled the same for all groups that are alike."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from neaptide.ir.builder import GraphBuilder
from neaptide.ir.nodes import Effects, Node
from neaptide.ir.text.writer import print_graph
from neaptide.symbolic.size_expr import SizeExpr
from neaptide.transform.fusion.group import Group
from neaptide.transform.fusion.members import Members, geometry
from neaptide.transform.rewrite import refused

_ZERO = SizeExpr.const(0)


@dataclass
class Body:
    """What a group computes; `needed` are the storages that anything after it needs.

    Attributes:
        nodes: ascending, with the views that it looks through; without those of no use.
        handed: values that it is called with, in the order of their first use.
        written: those of them that it overwrites.
        results: values on storages that it makes, of each the first.
    """

    members: Members
    group: Group
    needed: set[int]
    nodes: tuple[int, ...] = ()
    handed: tuple[int, ...] = ()
    written: tuple[int, ...] = ()
    results: tuple[int, ...] = ()
    made: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        graph = self.members.graph
        own = [graph.nodes[node] for node in self.group.nodes]
        created = {s: node for node in own for s in graph.created_storages(node)}
        wanted = [
            node
            for node in own
            if any(a.storage not in created for a in node.effects.writes)
            or any(graph.values[v].storage in self.needed for v in node.outputs)
        ]
        self.nodes = self._used_by(wanted)
        inside = [graph.nodes[node] for node in self.nodes]
        makers = {value: node for node in inside for value in node.outputs}
        self.handed = tuple(dict.fromkeys(v for node in inside for v in node.inputs if v not in makers))
        self.made = {s for node in inside for s in graph.created_storages(node)}
        storages = {a.storage for node in inside for a in node.effects.writes} - self.made
        self.written = tuple(v for v in self.handed if graph.values[v].storage in storages)
        first = {graph.values[v].storage: v for node in reversed(inside) for v in reversed(node.outputs)}
        kept = (storage for storage in created if storage in self.needed and storage in self.made)
        self.results = tuple(sorted(first[storage] for storage in kept))
        seen = [graph.values[v].storage for v in self.handed]
        if storages and any(seen.count(storage) > 1 for storage in storages):
            raise refused(own[0], "cannot be fused: what it overwrites is seen in two ways")

    @property
    def is_needed(self) -> bool:
        """Whether it makes or overwrites anything."""
        return bool(self.results or self.written)

    def stand_ins(self) -> dict[int, int]:
        """By value that is gone, made in place, the value on its storage that stands for it."""
        graph, found = self.members.graph, dict[int, int]()
        first = {graph.values[v].storage: v for v in (*self.handed, *self.results)}
        for node in (graph.nodes[number] for number in self.group.nodes):
            for value in node.outputs:
                other = first.get(graph.values[value].storage)
                if other is None or other == value:
                    continue
                if geometry(graph.values[value]) == geometry(graph.values[other]):
                    found[value] = other
                elif self._is_used_outside(value):
                    raise refused(node, "cannot be fused: its result lies otherwise than what it is made on")
        return found

    def text(self) -> str:
        """The body as text, with names by position."""
        graph, builder = self.members.graph, GraphBuilder("body")
        storage_of: dict[int, int] = {}
        value_of: dict[int, int] = {}

        def add(number: int, name: str, *, shifted: SizeExpr = _ZERO) -> int:
            value = graph.values[number]
            if value.storage is None:
                value_of[number] = builder.add_value(name, value.dtype)
                return value_of[number]
            if value.storage not in storage_of:
                block = graph.storages[value.storage]
                storage_of[value.storage] = builder.add_storage(block.nbytes, block.device, name=name)
            value_of[number] = builder.add_value(
                name,
                value.dtype,
                value.shape,
                value.strides,
                value.offset - shifted,
                storage_of[value.storage],
            )
            return value_of[number]

        for slot, number in enumerate(self.handed):
            builder.add_input(add(number, f"i{slot}"))
        for node in (graph.nodes[number] for number in self.nodes):
            reads = [storage_of[a.storage] for a in node.effects.reads]
            writes = [storage_of[a.storage] for a in node.effects.writes]
            outputs = tuple(add(number, f"v{len(value_of)}") for number in node.outputs)
            inputs = tuple(value_of[number] for number in node.inputs)
            made = Node(-1, node.op, inputs, outputs, node.args, node.kwargs, Effects(), results=node.results)
            builder.add_node(made, reads, writes)
        builder.output(*(value_of[number] for number in self.results))
        return print_graph(builder.finish())

    def _used_by(self, wanted: Iterable[Node]) -> tuple[int, ...]:
        """Nodes of the group, and views, that some of its nodes need, those included."""
        graph, members = self.members.graph, self.members
        inside = {*self.group.nodes, *self.group.copies}
        found: set[int] = set()
        waiting = [node.id for node in wanted]
        while waiting:
            number = waiting.pop()
            if number in found:
                continue
            found.add(number)
            waiting += (n for n in members.before[number] if n in inside) if not members.views[number] else ()
            user = graph.nodes[number]
            for value in user.inputs:
                waiting += (n for n in members.views_of(value, user) if n not in found)
                maker = graph.producer(members.base(value, user))
                if maker in inside and maker is not None:
                    waiting.append(maker)
        return tuple(sorted(found))

    def _is_used_outside(self, value: int) -> bool:
        graph, inside = self.members.graph, {*self.group.nodes, *self.nodes}
        return value in graph.outputs or any(value in n.inputs for n in graph.nodes if n.id not in inside)
