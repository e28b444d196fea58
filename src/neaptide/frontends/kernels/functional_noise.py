"""RReLU in training as one operation that makes its noise, rather than one that fills an empty tensor with it.

An operation that makes a result and overwrites another tensor cannot be recomputed. The one that makes both can, under the
state that its generator had; its bits are the same.
"""

from __future__ import annotations

from typing import Final

from neaptide.ir.edits.edit import Edited, GraphEdit, NodeDraft
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Access, Node, Ref
from neaptide.ir.values import contiguous_strides
from neaptide.symbolic.size_expr import SizeExpr

_FILLS: Final = "aten.rrelu_with_noise.default"
_MAKES: Final = "aten.rrelu_with_noise_functional.default"
_UNFILLED: Final = frozenset(
    {"aten.empty_like.default", "aten.new_empty.default", "aten.empty.memory_format"}
)
_ONE: Final = SizeExpr.const(1)


def with_functional_noise(graph: Graph) -> Edited | None:
    """The graph with such operations; None where it has none. O(size of the graph)."""
    found = [(node, maker) for node in graph.nodes if (maker := _maker_of_noise(graph, node)) is not None]
    if not found:
        return None
    edit = GraphEdit(graph)
    for node, maker in found:
        _replace(edit, graph, node, maker)
    return edit.finish()


def _maker_of_noise(graph: Graph, node: Node) -> Node | None:
    """The node that makes the empty tensor that a node fills with noise; None where it is not that simple."""
    if node.op != _FILLS or not node.effects.writes or node.args[:2] != (Ref(0), Ref(1)):
        return None
    data, noise, result = (graph.values[v] for v in (*node.inputs, *node.outputs))
    producer = graph.producer(noise.id)
    if producer is None or graph.nodes[producer].op not in _UNFILLED or noise.storage is None:
        return None
    is_dense = all(v.strides == contiguous_strides(v.shape) for v in (data, noise, result))
    users = [n for n in graph.nodes if Access(noise.storage, 0) in n.effects.reads]
    is_whole = graph.storages[noise.storage].nbytes == noise.nbytes
    return graph.nodes[producer] if is_dense and users == [node] and is_whole else None


def _replace(edit: GraphEdit, graph: Graph, node: Node, maker: Node) -> None:
    data, noise = (graph.values[v] for v in node.inputs)
    device = graph.storages[noise.storage or 0].device
    rank = (_ONE,) * len(noise.shape)
    filler = edit.fresh("filler", noise.dtype, rank, device=device)
    zeros = NodeDraft(
        "aten.new_zeros.default",
        (data.id,),
        (filler,),
        (Ref(0), (1,) * len(rank)),
        (("pin_memory", False),),
        reads=(),
        source=node.source,
    )
    edit.insert_before(node.id, zeros)
    strides = (SizeExpr.const(0),) * len(rank)
    shown = edit.alias("filler", noise.dtype, noise.shape, strides, SizeExpr.const(0), of=filler)
    sizes = tuple(size.constant_value() if size.is_constant else size for size in noise.shape)
    expand = NodeDraft(
        "aten.expand.default", (filler,), (shown,), (Ref(0), sizes), reads=(), source=node.source
    )
    edit.insert_before(node.id, expand)
    made = edit.fresh(
        noise.name, noise.dtype, noise.shape, device=device, kind=graph.storages[noise.storage or 0].kind
    )
    draft = NodeDraft(
        _MAKES,
        (data.id, shown),
        (*node.outputs, made),
        node.args,
        node.kwargs,
        rng=node.effects.rng,
        source=node.source,
    )
    edit.replace_node(node.id, draft)
    edit.replace_uses(noise.id, made)
    edit.remove(maker.id)
