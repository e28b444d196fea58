"""Two operations change places, where the second makes less of what it is given: pools come first."""

from __future__ import annotations

from typing import Final

from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node
from neaptide.ir.registry import OpRegistry
from neaptide.ops.dialect import Inserted, operands_of
from neaptide.ops.onnx.facts import MONOTONE
from neaptide.transform.drafting import Drafting
from neaptide.transform.node_rule import node_rule, operand_at
from neaptide.transform.passes.patterns import Patterns


class _Swaps:
    """Which operation in front of a node may come behind it."""

    def __init__(self, graph: Graph, registry: OpRegistry) -> None:
        self.at = Patterns(graph, registry)

    def average(self, node: Node) -> Node | str | None:
        """The convolution in front of an average: of single points, it gives the same behind."""
        at = self.at
        if not at.is_a(node, "AveragePool", "GlobalAveragePool"):
            return None
        first = at.only_maker(operand_at(node, 0))
        if first is None or not at.is_a(first, "Conv") or len(node.outputs) != 1:
            return "no convolution of its own is in front of it"
        points = at.windows(first)
        if points is None or any((p.kernel, p.stride, p.before, p.after) != (1, 1, 0, 0) for p in points):
            return "the convolution is not of single points"
        if at.is_a(node, "AveragePool"):
            windows = at.windows(node)
            if windows is None or node.kwarg("ceil_mode", 0) or any(w.before or w.after for w in windows):
                return "it takes averages at the edge of fewer elements, or of padding"
        return first

    def greatest(self, node: Node) -> Node | str | None:
        """The element-wise operation in front of a maximum pool: where it is monotone, it gives the same behind."""
        at = self.at
        if not at.is_a(node, "MaxPool", "GlobalMaxPool"):
            return None
        first = at.only_maker(operand_at(node, 0))
        if first is None or not at.is_a(first, *MONOTONE) or len(node.outputs) != 1:
            return "no monotone operation of its own is in front of it"
        if not at.are_weights(operands_of(first)[1:]):
            return "that operation has operands that are no weights"
        slope = first.kwarg("alpha", 0.0)
        if at.is_a(first, "HardSigmoid") and isinstance(slope, int | float) and slope < 0:
            return "that operation falls where its operand rises"
        return first


def _swap(drafting: Drafting, node: Node, first: Node) -> None:
    """Run a node on what the operation in front of it is given, and that one behind it."""
    given, *others = operands_of(first)
    assert given is not None
    made = drafting.shape(node.outputs[0])
    shape = (*drafting.shape(given)[:2], *made[2:])
    pooled = drafting.insert(node.id, Inserted.again(node), (given, *operands_of(node)[1:]), shape, "pooled")
    drafting.replace(node.id, Inserted.again(first), (pooled, *others))
    drafting.edit.remove(first.id)


CONV_POOL_SWAP: Final = node_rule(
    "conv_pool_swap",
    "average pools run before a convolution of single points",
    lambda graph, registry: _Swaps(graph, registry).average,
    _swap,
    ("change places", "it is no average"),
    keeps_bits=False,
    apart=True,
)

RELU_POOL_SWAP: Final = node_rule(
    "relu_pool_swap",
    "maximum pools run before a monotone element-wise operation",
    lambda graph, registry: _Swaps(graph, registry).greatest,
    _swap,
    ("change places", "it is no maximum pool"),
    apart=True,
)
