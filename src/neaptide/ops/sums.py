"""Operations that add two tensors and do nothing else."""

from __future__ import annotations

from typing import Final

from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node, Ref

_ADDITIONS: Final = frozenset({"aten.add.Tensor"})


def plain_terms(graph: Graph, node: Node) -> tuple[int, ...]:
    """The two values whose sum a node makes, of its shape and dtype; none where it does anything else, such as scaling."""
    if node.op not in _ADDITIONS or node.kwargs or not all(isinstance(arg, Ref) for arg in node.args):
        return ()
    made = graph.values[node.outputs[0]]
    terms = tuple(node.inputs[arg.slot] for arg in node.args if isinstance(arg, Ref))
    found = (graph.values[term] for term in terms)
    alike = all((value.shape, value.dtype) == (made.shape, made.dtype) for value in found)
    return terms if alike and len(terms) == 2 else ()
