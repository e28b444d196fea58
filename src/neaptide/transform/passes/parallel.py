"""Convolutions, or products, of one operand are one of all their filters, cut into their results; and the way back.

Merged, they read their operand once and then hold all results at once. A split of what one operation makes is not needed:
each part is made by the filters that are its own.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Final

from neaptide.ir.axes import OpAxis
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node
from neaptide.ir.registry import OpRegistry
from neaptide.ops.axes.forms import dim_of
from neaptide.ops.dialect import Inserted, operands_of
from neaptide.ops.onnx.dialect import inserted
from neaptide.transform.drafting import Drafting, constant_shape, resized
from neaptide.transform.node_rule import node_rule, operand_at
from neaptide.transform.part_reading import AxisFinder, Interval
from neaptide.transform.part_writer import PartWriter
from neaptide.transform.passes.patterns import Patterns

_Filters = tuple[tuple[int, int], ...]
"""Positions of weights with the dim of their output channels."""


@dataclass(frozen=True, slots=True)
class _Group:
    nodes: tuple[Node, ...]
    filters: _Filters
    dim: int  # of the channels in the results


class _Groups:
    """Operations of one operand that may be one, by the first of them."""

    def __init__(self, graph: Graph, registry: OpRegistry, *operators: str) -> None:
        self.at, self.graph = Patterns(graph, registry), graph
        alike: dict[object, list[Node]] = defaultdict(list)
        for node in graph.nodes:
            if self.at.is_a(node, *operators) and (key := self._key(node)) is not None:
                alike[key].append(node)
        groups = (self._with_filters_there(nodes) for nodes in alike.values())
        self.first = {nodes[0].id: nodes for nodes in groups if len(nodes) > 1}
        self.operators = operators

    def _with_filters_there(self, nodes: list[Node]) -> tuple[Node, ...]:
        """Those whose weights, where nodes make them, are made before the first of these operations."""
        first = nodes[0].id
        made = {
            node.id: [self.graph.producer(value) for value in operands_of(node)[1:] if value is not None]
            for node in nodes
        }
        return tuple(node for node in nodes if all(by is None or by < first for by in made[node.id]))

    def of(self, node: Node) -> _Group | str | None:
        """The operations that are one with a node, which is the first of them."""
        if not self.at.is_a(node, *self.operators):
            return None
        nodes = self.first.get(node.id)
        if nodes is None:
            return "no other of the same operand and attributes follows it"
        dim = 1 if self.at.is_a(node, "Conv") else len(self.graph.values[node.outputs[0]].shape) - 1
        return _Group(nodes, self._filters(node), dim)

    def _filters(self, node: Node) -> _Filters:
        if self.at.is_a(node, "Conv"):
            main = 0
        elif self.at.is_a(node, "Gemm"):
            main = 0 if node.kwarg("transB", 0) else 1
        else:
            filters = operand_at(node, 1)
            main = 1 if filters is None else len(self.graph.values[filters].shape) - 1
        return ((1, main), (2, 0)) if operand_at(node, 2) is not None else ((1, main),)

    def _key(self, node: Node) -> object:
        """Equal for operations that may be one; None for what is in groups, or whose filters are no weights."""
        at, values = self.at, self.graph.values
        operands = operands_of(node)
        if node.kwarg("group", 1) != 1 or not at.are_weights(operands[1:]):
            return None
        shapes: list[object] = []
        for position, dim in self._filters(node):
            value = operand_at(node, position)
            shape = None if value is None else constant_shape(values[value].shape)
            if shape is None or (position == 1 and len(shape) < 2) or (position == 2 and len(shape) != 1):
                return None
            shapes.append((*shape[:dim], *shape[dim + 1 :]))
        made = values[node.outputs[0]].shape
        kernel = tuple((name, repr(arg)) for name, arg in node.kwargs)
        return None if constant_shape(made) is None else (node.op, operands[0], kernel, tuple(shapes))


def _merge(drafting: Drafting, node: Node, group: _Group) -> None:
    """One operation of all filters in the place of the first, and a split."""
    operands = operands_of(node)
    shapes = [drafting.shape(other.outputs[0]) for other in group.nodes]
    lengths = tuple(shape[group.dim].constant_value() for shape in shapes)
    for position, dim in group.filters:
        pieces = [value for other in group.nodes if (value := operand_at(other, position)) is not None]
        total = sum(drafting.shape(piece)[dim].constant_value() for piece in pieces)
        shape = resized(drafting.shape(pieces[0]), dim, total)
        operands[position] = drafting.insert(node.id, drafting.dialect.join(dim), pieces, shape, "filters")
    whole = resized(shapes[0], group.dim, sum(lengths))
    made = drafting.insert(node.id, Inserted.again(node), operands, whole, "merged")
    results = [other.outputs[0] for other in group.nodes]
    for other in group.nodes[1:]:
        drafting.edit.remove(other.id)
    drafting.replace(node.id, inserted("Split", lengths, axis=group.dim), (made,), results)


MERGE_CONVOLUTIONS: Final = node_rule(
    "merge_convolutions",
    "convolutions of one operand are one convolution and a split",
    lambda graph, registry: _Groups(graph, registry, "Conv").of,
    _merge,
    ("be one with others", "it is no convolution"),
    apart=True,
)

MERGE_MATMULS: Final = node_rule(
    "merge_matmuls",
    "products of one operand are one product and a split",
    lambda graph, registry: _Groups(graph, registry, "MatMul", "Gemm").of,
    _merge,
    ("be one with others", "it is no product"),
    apart=True,
)


@dataclass(frozen=True, slots=True)
class _Cut:
    """What makes the operand of a split, from the operation whose filters are cut on, with the parts."""

    chain: tuple[tuple[Node, OpAxis], ...]
    parts: tuple[Interval, ...]


class _Splits:
    """Splits whose parts can be made each by itself."""

    def __init__(self, graph: Graph, registry: OpRegistry) -> None:
        self.at, self.graph, self.finder = Patterns(graph, registry), graph, AxisFinder(graph, registry)

    def of(self, node: Node) -> _Cut | str | None:
        """How the parts of a split are made; why they are not; None where it is none."""
        if not self.at.is_a(node, "Split") or node.outputs[0] in self.at.weights:
            return None
        dim = dim_of(node.kwarg("axis", 0), len(self.graph.values[node.outputs[0]].shape))
        if dim is None or any(value in self.at.outputs for value in node.outputs):
            return "a part is handed back"
        parts, begin = list[Interval](), 0
        for value in node.outputs:
            extent = self.graph.values[value].shape[dim]
            if not extent.is_constant:
                return "a size along its axis is symbolic"
            parts.append((begin, begin + extent.constant_value()))
            begin = parts[-1][1]
        chain: list[tuple[Node, OpAxis]] = []
        given, at = operand_at(node, 0), dim
        while (maker := self.at.only_maker(given)) is not None:
            axis = self._axis(maker, at)
            if axis is None:
                break
            chain.append((maker, axis))
            carried = [slot for slot in axis.operands if maker.inputs[slot] not in self.at.weights]
            if not carried:
                return _Cut(tuple(reversed(chain)), tuple(parts))
            if len(carried) > 1:
                break
            given, at = maker.inputs[carried[0]], axis.operands[carried[0]]
        return "no operation with filters of its own makes what it cuts"

    def _axis(self, node: Node, dim: int) -> OpAxis | None:
        fits = (a for a in self.finder.axes(node) if a.results.get(0) == dim and a.window is None)
        return next(fits, None)


def _apart(drafting: Drafting, node: Node, cut: _Cut) -> None:
    """Make each part of a split by itself."""
    writer = PartWriter(drafting, node.id)
    for result, elements in zip(node.outputs, cut.parts, strict=True):
        made: dict[int, tuple[int, Interval]] = {}
        for maker, axis in cut.chain:
            made.update(writer.write(maker, axis, elements, made, is_first=True))
        drafting.edit.replace_uses(result, made[cut.chain[-1][0].outputs[0]][0])
    drafting.edit.remove(node.id)
    for maker, _ in reversed(cut.chain):
        drafting.edit.remove(maker.id)


REMOVE_SPLIT: Final = node_rule(
    "remove_split",
    "parts of a split are made each by the filters of their own",
    lambda graph, registry: _Splits(graph, registry).of,
    _apart,
    ("be made part by part", "it is no split"),
    apart=True,
)
