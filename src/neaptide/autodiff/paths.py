"""Which nodes lie between the values to differentiate and the loss."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from neaptide.autodiff.rules.table import FINAL


@dataclass(frozen=True, slots=True)
class Paths:
    """What derivatives pass.

    Attributes:
        nodes: from the loss backwards.
        varying: values that depend on a chosen one.
    """

    nodes: tuple[ir.Node, ...]
    varying: frozenset[ir.Value | None]


def find_paths(graph: ir.Graph, loss: ir.Value, chosen: Sequence[ir.Value]) -> Paths:
    """Nodes that depend on a chosen value and on which the loss depends."""
    varying: set[ir.Value | None] = set(chosen)
    passing = []
    for node in graph:
        is_final = node.op_type in FINAL and node.domain in {"", "ai.onnx"}
        if is_final or not any(value in varying for value in _operands(node)):
            continue
        results = [v for v in node.outputs if v.dtype is None or v.dtype.is_floating_point()]
        varying.update(results)
        if results:
            passing.append(node)
    needed: set[ir.Value | None] = {loss}
    nodes = []
    for node in reversed(passing):
        if any(value in needed for value in node.outputs):
            needed.update(_operands(node))
            nodes.append(node)
    return Paths(tuple(nodes), frozenset(varying))


def _operands(node: ir.Node) -> Iterator[ir.Value | None]:
    """Inputs, and values that its subgraphs capture."""
    yield from node.inputs
    for attribute in node.attributes.values():
        bodies = {ir.AttributeType.GRAPH: [attribute.value], ir.AttributeType.GRAPHS: attribute.value}
        for body in bodies.get(attribute.type, ()):
            for inner in ir.traversal.RecursiveGraphIterator(body):
                yield from inner.inputs
