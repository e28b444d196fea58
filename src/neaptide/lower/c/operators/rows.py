"""All operators that can be written as C, by name; in all their versions from opset 7 on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from neaptide.errors import LoweringError
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node
from neaptide.lower.c.operators import (
    elementwise,
    indexing,
    layers,
    movement,
    quantized,
    recurrent,
    reductions,
)
from neaptide.lower.c.operators.node_call import Row

OPERATORS: Final[Mapping[str, Row]] = {
    **elementwise.ROWS,
    **movement.ROWS,
    **layers.ROWS,
    **reductions.ROWS,
    **indexing.ROWS,
    **quantized.ROWS,
    **recurrent.ROWS,
}
_DOMAINS: Final = frozenset({"onnx", "com_microsoft"})


def row_of(node: Node) -> Row | None:
    """The row of a node's operator; None for one that cannot be written."""
    domain, operator, _ = (*node.op.split("."), "", "")[:3]
    return OPERATORS.get(operator) if domain in _DOMAINS else None


def operator_of(node: Node) -> tuple[str, int]:
    """Name and version of a node's operator."""
    parts = node.op.split(".")
    return parts[1], int(parts[2]) if len(parts) > 2 and parts[2].isdigit() else 0


def check_operators(graph: Graph, nodes: Iterable[int]) -> None:
    """Raise an error that names all operators that cannot be written.

    Raises:
        LoweringError: there are some.
    """
    found = (graph.nodes[number] for number in nodes)
    missing = sorted({node.op.rpartition(".")[0] for node in found if row_of(node) is None})
    if missing:
        raise LoweringError(
            f"the C target has no kernel for {', '.join(missing)}",
            why=f"it has {len(OPERATORS)} operators",
            next_step="plan this model for another target",
        )
