"""All operators that can be written as C, by name; in all their versions from opset 7 on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from neaptide.errors import LoweringError
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import ADD_OP, COPY_OP, LOOP_OP, PUT_OP, Node
from neaptide.lower.c import (
    elementwise_ops,
    indexing_ops,
    layer_ops,
    movement_ops,
    quantized_ops,
    reduction_ops,
)
from neaptide.lower.c.node_call import NodeCall, Row

OPERATORS: Final[Mapping[str, Row]] = {
    **elementwise_ops.ROWS,
    **movement_ops.ROWS,
    **layer_ops.ROWS,
    **reduction_ops.ROWS,
    **indexing_ops.ROWS,
    **quantized_ops.ROWS,
}
_DOMAINS: Final = frozenset({"onnx", "com_microsoft"})


def _put(call: NodeCall) -> None:
    call.copy(call.x(1), call.x(0))


def _add(call: NodeCall) -> None:
    added = NodeCall(call.code, "Add", 14, call.operands, (call.x(0),), {}, call.constants)
    OPERATORS["Add"].emit(added)


def _copy(call: NodeCall) -> None:
    call.copy(call.x(), call.y())


_IN_LOOPS: Final[Mapping[str, Row]] = {PUT_OP: Row(_put), ADD_OP: Row(_add), COPY_OP: Row(_copy)}
LOOP_ROW: Final = Row(_put, dense=True)
"""Stands for a loop where only the layout of its operands is asked for."""


def row_of(node: Node) -> Row | None:
    """The row of a node's operator; None for one that cannot be written."""
    if node.op == LOOP_OP:
        return LOOP_ROW
    if node.op in _IN_LOOPS:
        return _IN_LOOPS[node.op]
    domain, operator, _ = (*node.op.split("."), "", "")[:3]
    return OPERATORS.get(operator) if domain in _DOMAINS else None


def operator_of(node: Node) -> tuple[str, int]:
    """Name and version of a node's operator."""
    parts = node.op.split(".")
    return parts[1], int(parts[2]) if len(parts) > 2 and parts[2].isdigit() else 0


def check_operators(graph: Graph, nodes: Iterable[int]) -> None:
    """Raise an error that names all operators that cannot be written, those in the bodies of loops included.

    Raises:
        LoweringError: there are some.
    """
    missing = sorted(set(_missing(graph, nodes)))
    if missing:
        names = ", ".join(missing)
        raise LoweringError(
            f"the C target has no kernel for {names}",
            why=f"it has {len(OPERATORS)} operators",
            next_step="plan this model for another target",
        )


def _missing(graph: Graph, nodes: Iterable[int]) -> Iterable[str]:
    for number in nodes:
        node = graph.nodes[number]
        if row_of(node) is None:
            yield ".".join(node.op.split(".")[:2])
        for loop in node.regions:
            yield from _missing(loop.body, range(len(loop.body.nodes)))
