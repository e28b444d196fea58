"""What may be in a group, and what it must wait for, where views stand in nobody's way."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence

from neaptide.analysis.alias import alias_operand, is_pure_view
from neaptide.ir.dependencies import predecessors
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node
from neaptide.ir.registry import Call, OpRegistry, Trait
from neaptide.ir.values import Value
from neaptide.ops.fused import may_be_fused, takes_rows

_UPDATES = "optimizer"  # the phase of a node
_DTYPES = ("float", "bfloat", "int", "uint", "bool")


class Members:
    """The nodes of a graph by what they may be in a group. O(size) to make.

    Attributes:
        views: by node, whether it only hands on the bytes of one operand. Kernels look through such nodes, so a group need
            not wait for them.
        before: by node that is no view, the nodes before it that are none either, ascending.
        after: the reverse.
        written: by storage, the nodes that overwrite it, ascending.
    """

    def __init__(self, graph: Graph, registry: OpRegistry) -> None:
        self.graph, self.registry = graph, registry
        self.views = [_is_view(graph, node, registry) for node in graph.nodes]
        self.before: list[tuple[int, ...]] = []
        self.after: list[list[int]] = [[] for _ in graph.nodes]
        for node, found in enumerate(predecessors(graph)):
            through: set[int] = set()
            for other in {*found, *_makers(graph, graph.nodes[node])}:
                through.update(self.before[other] if self.views[other] else (other,))
            self.before.append(tuple(sorted(through)))
            if not self.views[node]:
                for other in through:
                    self.after[other].append(node)
        self.written: dict[int, list[int]] = defaultdict(list)
        for made in graph.nodes:
            for access in made.effects.writes:
                self.written[access.storage].append(made.id)

    def objection(self, node: Node) -> str | None:
        """Why a node may not be in a group; None where it may."""
        graph, spec = self.graph, self.registry.find(node.op)
        if spec is None or node.regions or node.effects.host or node.effects.collective or node.effects.rng:
            return "does more than compute its results"
        call = Call(graph, node)
        if not may_be_fused(spec, call):
            return "works neither element by element nor by rows"
        values = (*call.inputs(), *call.outputs())
        if not node.outputs or any(value.is_host_scalar for value in call.outputs()):
            return "makes no tensor"
        tensors = [value for value in values if not value.is_host_scalar]
        if any(not value.dtype.startswith(_DTYPES) or value.dtype.startswith("float4") for value in tensors):
            return "works on numbers that no kernel has"
        if any(not self._is_whole(node, value) for value in node.outputs):
            return "overwrites what it sees through a view"
        if not all(n.is_constant for value in tensors for n in (*value.shape, *value.strides, value.offset)):
            return "has a size that is known only as the program runs"
        return None

    def _is_whole(self, node: Node, value: int) -> bool:
        """Whether a result has bytes of its own, or lies as what it was made on lay at first."""
        graph, made = self.graph, self.graph.values[value]
        if made.storage is None or made.storage in graph.created_storages(node):
            return True
        base = graph.values[self.base(alias_operand(graph, node, made.storage))]
        return geometry(base) == geometry(made)

    def is_seen_twice(self, nodes: Collection[int]) -> bool:
        """Whether nodes overwrite a storage that they are handed as two values."""
        graph, inside = self.graph, [self.graph.nodes[node] for node in nodes]
        made = {value for node in inside for value in node.outputs}
        written = {a.storage for node in inside for a in node.effects.writes}
        if not written:
            return False
        handed = {self.base(value, node) for node in inside for value in node.inputs} - made
        seen = [graph.values[value].storage for value in handed]
        return any(seen.count(storage) > 1 for storage in written)

    def device(self, node: Node) -> str:
        """The device of a node's first result."""
        storage = self.graph.values[node.outputs[0]].storage
        assert storage is not None
        return self.graph.storages[storage].device

    def space(self, node: Node) -> int:
        """How many elements a kernel of this node alone goes through."""
        call = Call(self.graph, node)
        seen = call.outputs()
        if takes_rows(call):
            seen = (*(value for value in call.inputs() if not value.is_host_scalar), *seen)
        return max(value.numel.constant_value() for value in seen)

    def rows(self, node: Node) -> set[int]:
        """Numbers of elements, fewer than its space, of the results that a node makes of rows."""
        call = Call(self.graph, node)
        if not takes_rows(call):
            return set()
        space = self.space(node)
        return {numel for value in call.outputs() if (numel := value.numel.constant_value()) < space}

    def base(self, value: int, user: Node | None = None) -> int:
        """The value at the beginning of the views that a value comes from; itself where it is of none.

        A user looks through views, but an update does not look through those of the backward: what they show are gradients,
        which somebody may look at between the two.
        """
        for view in reversed(self.views_of(value, user)):
            value = self._operand(view)
        return value

    def views_of(self, value: int, user: Node | None = None) -> list[int]:
        """The views between a value and its base, the first one first."""
        found: list[int] = []
        while (view := self.graph.producer(value)) is not None and self.views[view]:
            phase = self.graph.nodes[view].source.phase
            if user is not None and user.source.phase == _UPDATES and phase != _UPDATES:
                break
            found.append(view)
            value = self._operand(view)
        return found[::-1]

    def _operand(self, view: int) -> int:
        node = self.graph.nodes[view]
        storage = self.graph.values[node.outputs[0]].storage
        assert storage is not None
        return alias_operand(self.graph, node, storage)


def _makers(graph: Graph, node: Node) -> set[int]:
    """Nodes that make the operands of a node, those needed only for their shape included: a program names these as well."""
    return {made for value in node.inputs if (made := graph.producer(value)) is not None}


def geometry(value: Value) -> tuple[object, ...]:
    """How a value lies in its storage."""
    return value.dtype, value.shape, value.strides, value.offset


def _is_view(graph: Graph, node: Node, registry: OpRegistry) -> bool:
    spec = registry.find(node.op)
    is_view = spec is not None and spec.is_a(Trait.VIEW)
    return is_view and len(node.inputs) == 1 and not node.regions and is_pure_view(graph, node)


def places_in(groups: Sequence[tuple[Sequence[int], int]], count: int) -> list[int]:
    """By node, where it runs: at the place of its group, or where it is."""
    place = list(range(count))
    for nodes, at in groups:
        for node in nodes:
            place[node] = at
    return place
