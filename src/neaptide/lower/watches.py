"""Copies of values on the way, for verify runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from neaptide.errors import LoweringError
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Access, Node
from neaptide.ir.values import Value
from neaptide.lower.program import Watch
from neaptide.lower.sizes import grouped
from neaptide.lower.torch_calls import CallWriter


def watches_by_access(graph: Graph, watches: Sequence[Watch]) -> dict[Access, list[Watch]]:
    """Watches by the version of a storage at which they copy."""
    due: dict[Access, list[Watch]] = defaultdict(list)
    for watch in watches:
        storage = graph.values[watch.value].storage
        if storage is None:
            raise LoweringError(f"{watch.name} is a number; only tensors can be copied on the way")
        due[Access(storage, watch.version)].append(watch)
    return dict(due)


def refuse_missed(due: Mapping[Access, Sequence[Watch]]) -> None:
    """Refuse watches that are left when all nodes have run."""
    for missed in due.values():
        raise LoweringError(
            f"{missed[0].name} is to be copied at version {missed[0].version}, which is never made"
        )


# Views that read the same bytes as other numbers, and how a tensor is told to.
_LAZY = {"aten._conj.default": ".conj()", "aten._neg_view.default": ".neg()"}


def _is_odd(graph: Graph, value: Value, op: str) -> bool:
    """Whether an odd number of such views lies between the bytes of a value and itself."""
    odd = False
    producer = graph.producer(value.id)
    while producer is not None:
        node = graph.nodes[producer]
        if not node.inputs or graph.values[node.inputs[0]].storage != value.storage:
            break
        odd ^= node.op == op
        producer = graph.producer(node.inputs[0])
    return odd


def copy_text(graph: Graph, node: Node | None, watch: Watch, calls: CallWriter) -> str:
    """The copy of a watched value directly behind the node that makes the version; None: at the beginning.

    The value itself may be deleted by then or not made yet (a view): the copy is then taken through another value on
    the same storage, one that is bound there for certain.
    """
    value = graph.values[watch.value]
    bound = graph.inputs if node is None else (*node.outputs, *node.inputs)
    if watch.value in bound:
        return f"{calls.names.variable(value)}.clone()"
    for other in (graph.values[v] for v in bound):
        if other.storage == value.storage and other.dtype == value.dtype:
            # Counted from where the other one lies: its storage may be that of an arena.
            seen = calls.names.variable(other)
            offset = f"{seen}.storage_offset() + {grouped(calls.size(value.offset - other.offset))}"
            geometry = f"{calls.sizes(value.shape)}, {calls.sizes(value.strides)}, {offset}"
            views = "".join(
                method
                for op, method in _LAZY.items()
                if _is_odd(graph, value, op) != _is_odd(graph, other, op)
            )
            return f"{seen}.as_strided({geometry}){views}.clone()"
    raise LoweringError(
        f"{watch.name} cannot be copied at version {watch.version}",
        why=f"nothing of dtype {value.dtype} sees its storage there",
    )
