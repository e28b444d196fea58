"""A copy of a copy is one copy: a join, a clone or a cast that is only permuted and copied again lies in that order at once.

Packed projections give their gradients back as a stack, which is permuted and copied to be a matrix. Attention in float32
under autocast casts its operands up, permutes them, casts them down and copies them. (Motion of transpositions and joins
past each other, as in TASO, Jia et al., SOSP 2019.) Only where nothing else uses the first, and the second is no larger: bytes
never grow in program order.
"""

from __future__ import annotations

from dataclasses import dataclass

from neaptide.analysis.alias import is_pure_view
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Named, Node, refs
from neaptide.ir.registry import OpRegistry
from neaptide.ir.values import DTYPE_BYTES, Value
from neaptide.ops.aten.dialect import CAST, CLONE, JOINS, LAYOUT, ROW_MAJOR
from neaptide.ops.dialect import EXACT, Inserted
from neaptide.transform.drafting import Drafting
from neaptide.transform.node_rule import Pattern, Uses, is_row_major, node_rule, used_once

# What a cast may say; its device is that of its operand, and all layouts are strided.
_DTYPE_AND_LAYOUT = frozenset({"dtype", "device", "layout", LAYOUT})


@dataclass(frozen=True, slots=True)
class _Place:
    """A copy of copies.

    Attributes:
        between: views and copies that lead from it to the last copy; they go.
        order: dim of the first copy that each dim of the last one shows.
    """

    first: Node
    between: tuple[int, ...]
    order: tuple[int, ...]


class _Places:
    """Which copies of a graph need not be copied again. O(size of the graph) to make."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.is_used_once = used_once(graph)
        self.written = Uses(graph).written

    def of(self, node: Node) -> _Place | str | None:
        """What a copy copies; why that stays; None where it copies no copy."""
        result = self.graph.values[node.outputs[0]] if _is_copy(node) else None
        if result is None or not is_row_major(result):
            return None
        place, last = None, node
        order = tuple(range(len(result.shape)))
        between: tuple[int, ...] = ()
        while (found := self._before(last, result)) is not None:
            if isinstance(found, str):
                return place or found
            first, views, dims = found
            order = tuple(dims[dim] for dim in order)
            between += views
            place = _Place(first, between, order)
            if not _is_copy(first):
                break
            last, between = first, (*between, first.id)
        return place

    def _before(
        self, node: Node, result: Value
    ) -> tuple[Node, tuple[int, ...], tuple[int, ...]] | str | None:
        """What makes the copy that a copy copies, the views between, and its dims as they are copied.

        Returns:
            Why the two copies may not be one, if so; None where the node copies no copy.
        """
        value, views = node.inputs[0], list[int]()
        while (producer := self.graph.producer(value)) is not None:
            first = self.graph.nodes[producer]
            if _is_copy(first) or _joined_dim(first) is not None:
                return self._joined(first, views, node, result)
            if not is_pure_view(self.graph, first) or len(first.inputs) != 1:
                break
            views.append(producer)
            value = first.inputs[0]
        return None

    def _joined(
        self, first: Node, views: list[int], node: Node, result: Value
    ) -> tuple[Node, tuple[int, ...], tuple[int, ...]] | str | None:
        """With what makes the first copy, as `_before`."""
        made, shown = self.graph.values[first.outputs[0]], self.graph.values[node.inputs[0]]
        order = _order(made, shown)
        if order is None or not self._is_same(first, made, result):
            return None
        chain = (made.id, *(self.graph.nodes[view].outputs[0] for view in views))
        if not all(map(self.is_used_once, chain)):
            return "the first copy is used elsewhere"
        if made.storage in self.written:
            return "the first copy is written into"
        if DTYPE_BYTES[result.dtype] > DTYPE_BYTES[made.dtype]:
            return "the first copy is smaller"
        return first, tuple(views), order

    def _is_same(self, first: Node, made: Value, result: Value) -> bool:
        """Whether the second copy has the bits of one that is made of what the first one copies."""
        devices = set[str]()
        for value in (*first.inputs, made.id, result.id):
            storage = self.graph.values[value].storage
            if storage is None:
                return False
            devices.add(self.graph.storages[storage].device)
        if len(devices) != 1 or "complex" in made.dtype:  # a conjugated view has the strides of its base
            return False
        if _joined_dim(first) is not None:
            return (
                {self.graph.values[value].dtype for value in first.inputs} == {made.dtype} == {result.dtype}
            )
        given = self.graph.values[first.inputs[0]].dtype
        return made.dtype in {given, result.dtype} or made.dtype in EXACT.get(given, ())


def _is_copy(node: Node) -> bool:
    """Whether a node copies one tensor, and says nothing of the copy but dtype and layout."""
    said = {name for name, _ in node.kwargs}
    return (
        node.op in (CLONE, CAST)
        and len(node.inputs) == 1
        and node.effects.is_pure
        and said <= _DTYPE_AND_LAYOUT
    )


def _joined_dim(node: Node) -> int | None:
    """The dim along which a node joins tensors; None where it joins none."""
    if node.op not in JOINS or node.kwargs or not node.args or not isinstance(node.args[0], tuple):
        return None
    dim = node.args[1] if len(node.args) > 1 else 0
    return dim if isinstance(dim, int) and dim >= 0 else None


def _order(made: Value, shown: Value) -> tuple[int, ...] | None:
    """The dim of a tensor that each dim of a view of it shows; None where the view does more than to permute them."""
    if shown.offset != made.offset or shown.dtype != made.dtype or len(shown.shape) != len(made.shape):
        return None
    left, order = list(range(len(made.shape))), []
    for extent, stride in zip(shown.shape, shown.strides, strict=True):
        dim = next((d for d in left if (made.shape[d], made.strides[d]) == (extent, stride)), None)
        if dim is None:
            return None
        left.remove(dim)
        order.append(dim)
    return tuple(order)


def _put(drafting: Drafting, node: Node, place: _Place) -> None:
    """Make a copy in the place of the one that it copies."""
    first, result = place.first, drafting.graph.values[node.outputs[0]]
    dim = _joined_dim(first)
    if dim is None:
        layout = (LAYOUT, Named(LAYOUT, ROW_MAJOR))
        is_cast = drafting.dtype(first.inputs[0]) != result.dtype
        dtype = ("dtype", Named("dtype", result.dtype))
        made = Inserted(CAST, (dtype, layout)) if is_cast else Inserted(CLONE, (layout,))
        order = place.order
    else:
        made = Inserted(first.op, args=(place.order.index(dim),), is_listed=True)
        is_new = JOINS[first.op]
        order = tuple(d - (d > dim) for d in place.order if d != dim) if is_new else place.order
    turned = {
        value: drafting.turned(first.id, value, order, f"{drafting.graph.values[value].name}_permuted")
        for value in dict.fromkeys(first.inputs)
    }
    operands = [turned[first.inputs[ref.slot]] for ref in refs(first.args[0])]
    drafting.replace(first.id, made, operands, (result.id,))
    for gone in place.between:
        drafting.edit.remove(gone)
    drafting.edit.remove(node.id)


def _pattern(graph: Graph, _: OpRegistry) -> Pattern:
    """The last copy of a chain stands for the others."""
    places, gone = _Places(graph), set[int]()
    at: dict[int, _Place | str | None] = {}
    for node in reversed(graph.nodes):
        at[node.id] = None if node.id in gone else places.of(node)
        if isinstance(place := at[node.id], _Place):
            gone.update((place.first.id, *place.between))
    return lambda node: at[node.id]


REDUNDANT_COPIES = node_rule(
    name="redundant_copies",
    summary="redundant copies are left out",
    pattern=_pattern,
    change=_put,
    cannot=("go", "it copies no copy, or another copies what it copies"),
)
