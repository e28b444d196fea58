"""Which values see the same bytes, and through which operand."""

from __future__ import annotations

from neaptide.errors import VerifyError
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node


def alias_operand(graph: Graph, node: Node, storage: int) -> int:
    """The input through which a view or in-place node sees an existing storage: the first one on it."""
    for value in node.inputs:
        if graph.values[value].storage == storage:
            return value
    raise VerifyError(
        f"node {node.id} ({node.op}) uses storage {storage} without an input on it",
        where=node.source.location or None,
        why="a view or an in-place result lives in the storage of one of its operands",
        next_step="add the operand to the node's inputs",
    )


def is_pure_view(graph: Graph, node: Node) -> bool:
    """Whether a node only hands on storages of its operands: no new bytes, nothing overwritten."""
    return (
        bool(node.outputs)
        and node.effects.is_pure
        and all(graph.values[v].storage is not None for v in node.outputs)
        and not graph.created_storages(node)
    )


def view_base(graph: Graph, value: int) -> int:
    """The value that a chain of views starts from: itself, when a node makes its bytes or the caller owns it.

    The result of an in-place node is a base: what it shows did not exist before.
    """
    base = value
    while (producer := graph.producer(base)) is not None:
        node = graph.nodes[producer]
        storage = graph.values[base].storage
        if storage is None or not is_pure_view(graph, node):
            break
        base = alias_operand(graph, node, storage)
    return base
