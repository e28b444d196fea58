"""A batch norm behind a convolution becomes part of its weights: the convolution of scaled filters, with another bias.

The arithmetic is on weights alone, so it is done once, when a file is written. It is written as batch norms of the weights:
of the filters without shift and mean, and of the bias.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node
from neaptide.ir.registry import OpRegistry
from neaptide.ops.dialect import Inserted, operands_of
from neaptide.ops.onnx.dialect import inserted
from neaptide.transform.drafting import Drafting, sized
from neaptide.transform.node_rule import node_rule, operand_at
from neaptide.transform.passes.patterns import Patterns

_STATISTICS: Final = range(1, 5)  # scale, shift, mean, variance


@dataclass(frozen=True, slots=True)
class _Place:
    convolution: Node
    operands: tuple[int | None, ...]
    statistics: tuple[int, ...]
    channels_first: bool  # in the filters


class _Places:
    def __init__(self, graph: Graph, registry: OpRegistry) -> None:
        self.at = Patterns(graph, registry)

    def of(self, node: Node) -> _Place | str | None:
        at = self.at
        if not at.is_a(node, "BatchNormalization"):
            return None
        if len(node.outputs) != 1 or node.kwarg("training_mode", 0) != 0 or node.kwarg("spatial", 1) != 1:
            return "it takes statistics of its operand"
        convolution = at.only_maker(operand_at(node, 0))
        if convolution is None or not at.is_a(convolution, "Conv", "ConvTranspose"):
            return "it follows no convolution, or others use what that makes"
        statistics = [value for k in _STATISTICS if (value := operand_at(node, k)) is not None]
        operands = (*operands_of(convolution), None)[:3]
        if len(statistics) != len(_STATISTICS) or not at.are_weights([*statistics, *operands[1:]]):
            return "its numbers, or those of the convolution, are no weights"
        is_turned = at.is_a(convolution, "ConvTranspose")
        if is_turned and convolution.kwarg("group", 1) != 1:
            return "the convolution is transposed and in groups"
        return _Place(convolution, operands, tuple(statistics), not is_turned)


def _fold(drafting: Drafting, node: Node, place: _Place) -> None:
    given, filters, bias = place.operands
    assert filters is not None
    scale, shift, mean, variance = place.statistics
    anchor = place.convolution.id
    norm = Inserted(node.op, tuple(pair for pair in node.kwargs if pair[0] != "spatial"))
    shape, flat_shape = drafting.shape(filters), drafting.shape(mean)
    zero = drafting.insert(anchor, inserted("Sub"), (mean, mean), flat_shape, "zero")
    if place.channels_first:
        order = (1, 0, *range(2, len(shape)))
        filters = drafting.turned(anchor, filters, order)
        statistics = (filters, scale, zero, zero, variance)
        filters = drafting.insert(anchor, norm, statistics, drafting.shape(filters))
        filters = drafting.turned(anchor, filters, order, "filters")
    else:
        filters = drafting.insert(anchor, norm, (filters, scale, zero, zero, variance), shape, "filters")
    row = sized(1, flat_shape[0])
    flat = drafting.insert(anchor, inserted("Flatten", axis=0), (zero if bias is None else bias,), row)
    flat = drafting.insert(anchor, norm, (flat, scale, shift, mean, variance), row)
    bias = drafting.insert(anchor, inserted("Squeeze", (0,)), (flat,), flat_shape, "bias")
    drafting.replace(node.id, Inserted.again(place.convolution), (given, filters, bias))
    drafting.edit.remove(anchor)


CONV_BATCH_NORM: Final = node_rule(
    "conv_batch_norm",
    "batch norms become part of the convolution in front of them",
    lambda graph, registry: _Places(graph, registry).of,
    _fold,
    ("become part of a convolution", "it is no batch norm"),
    keeps_bits=False,
    apart=True,
)
