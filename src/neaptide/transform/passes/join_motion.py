"""Operations behind a join run on its pieces instead: before the join where they keep its axis, as a sum where they add it up.

(Motion of joins, as in TASO: Jia et al., SOSP 2019; the sum of partial convolutions is Serenity's: Ahn et al., MLSys 2020.)
An operation for each piece may take more bytes than before, and often makes the join or what it holds unnecessary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from neaptide.analysis.folded import folded_values
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node, Ref
from neaptide.ir.registry import OpRegistry, Trait
from neaptide.ops.axes.forms import dim_of
from neaptide.ops.onnx.table import operator_of
from neaptide.transform.passes.drafting import Drafting, pass_rule
from neaptide.transform.passes.estimate import bytes_of_values
from neaptide.transform.passes.lines import Interval, Line, LineFinder, extent
from neaptide.transform.passes.unroll import PartWriter

_SMALL: Final = 16
"""What is cut beside the pieces of a join takes at most such a part of it."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A tensor that is joined, and its elements in the join."""

    value: int
    elements: Interval


Chain: TypeAlias = tuple[tuple[Node, Line], ...]


@dataclass(frozen=True, slots=True)
class Readers:
    """What reads a join: chains of nodes, each with how it runs on a piece."""

    pieces: tuple[Piece, ...]
    chains: tuple[Chain, ...]
    finder: LineFinder


class Joins:
    """Which joins of a graph may be moved behind what reads them, or go."""

    def __init__(
        self,
        graph: Graph,
        registry: OpRegistry,
        traits: frozenset[Trait],
        beside: frozenset[Trait] = frozenset(),
        *,
        as_sum: bool = False,
    ) -> None:
        """`traits`: of readers, one at least; `beside`: of others that run on pieces with them."""
        self.graph, self.registry, self.as_sum = graph, registry, as_sum
        self.traits, self.every = traits, traits | beside
        self.finder, self.users = LineFinder(graph, registry), graph.consumers()
        self.weights, self.outputs = folded_values(graph), set(graph.outputs)

    def of(self, node: Node) -> Readers | str | None:
        """How the users of a join run on pieces; why they do not; None where it is no join."""
        pieces = pieces_of(self.graph, node)
        if not isinstance(pieces, tuple) or node.outputs[0] in self.weights:
            return pieces if isinstance(pieces, str) else None
        joined, axis = node.outputs[0], int(str(node.kwarg("axis")))
        if joined in self.outputs:
            return "it is handed back"
        axis %= len(self.graph.values[joined].shape)
        users = [self.graph.nodes[user] for user in self.users[joined]]
        if users and not self.as_sum and not any(self._is_a(user, self.traits) for user in users):
            return f"{users[0].op} uses it"
        chains: list[Chain] = []
        for user in users:
            found = self._sums(user, joined, axis) if self.as_sum else self._kept(user, joined, axis)
            if isinstance(found, str):
                return found
            chains += found
        if not chains:
            return "nothing uses it"
        return Readers(pieces, tuple(chains), self.finder)

    def _kept(self, node: Node, joined: int, axis: int) -> list[Chain] | str:
        """What keeps the axis, one after another, beginning with a node."""
        found: list[tuple[Node, Line]] = []
        while True:
            line = self._line(node, joined, axis)
            if isinstance(line, str):
                return [tuple(found)] if found else line
            found.append((node, line))
            (joined,) = node.outputs
            users, how = self.users[joined], line.results[0]
            if not isinstance(how, int) or len(users) != 1 or joined in self.outputs:
                return [tuple(found)]
            node, axis = self.graph.nodes[users[0]], how

    def _sums(self, node: Node, joined: int, axis: int) -> list[Chain] | str:
        """Each way from a node to what adds up the axis; what lies on several ways runs for each of them."""
        line = self._line(node, joined, axis)
        if isinstance(line, str):
            return line
        if line.is_sum:
            return [((node, line),)]
        (made,), how = node.outputs, line.results[0]
        if not isinstance(how, int) or made in self.outputs or not self._is_a(node, _SIZE_KEPT):
            return f"{node.op} keeps its axis"
        ways: list[Chain] = []
        for user in self.users[made]:
            found = self._sums(self.graph.nodes[user], made, how)
            if isinstance(found, str):
                return found
            ways += [((node, line), *way) for way in found]
        return ways

    def _line(self, node: Node, joined: int, axis: int) -> Line | str:
        if not self._is_a(node, self.every) or len(node.outputs) != 1:
            return f"{node.op} uses it"
        line = self.finder.find(node, {s: axis for s, v in enumerate(node.inputs) if v == joined})
        if line is None or line.axis is None or line.axis.window is not None:
            return f"{node.op} needs all of its axis at once"
        if line.is_sum and not self.as_sum:
            return f"{node.op} adds up along its axis"
        others = {node.inputs[slot] for slot in line.operands} - {joined} - self.weights
        sizes = self.graph.remembered(bytes_of_values)
        if sum(sizes[value] for value in others) > sizes[joined] // _SMALL:
            return f"{node.op} has another operand that would be cut"
        return line

    def _is_a(self, node: Node, traits: frozenset[Trait]) -> bool:
        spec = self.registry.find(node.op)
        return spec is not None and not traits.isdisjoint(spec.traits)


def pieces_of(graph: Graph, node: Node) -> tuple[Piece, ...] | str | None:
    """What a join joins; why that is not known; None where it is no join."""
    if operator_of(node.op) != "Concat":
        return None
    axis = dim_of(node.kwarg("axis"), len(graph.values[node.outputs[0]].shape))
    values = [node.inputs[arg.slot] for arg in node.args if isinstance(arg, Ref)]
    if len(values) < 2:
        return "it joins one tensor"
    if axis is None or not all(graph.values[value].shape[axis].is_constant for value in values):
        return "sizes along its axis are symbolic"
    pieces, begin = [], 0
    for value in values:
        end = begin + extent(graph, value, axis)
        pieces.append(Piece(value, (begin, end)))
        begin = end
    return tuple(pieces)


def _on_pieces(drafting: Drafting, node: Node, readers: Readers) -> None:
    """Run what reads a join on its pieces; the join goes."""
    for chain in readers.chains:
        last, line = chain[-1]
        writer = PartWriter(drafting, readers.finder, last.id)
        results: list[int] = []
        for number, piece in enumerate(readers.pieces):
            made, elements = piece.value, piece.elements
            before = node.outputs[0]
            for reader, how in chain:
                there = {before: (made, elements)}
                (before,) = reader.outputs
                made, elements = writer.write(reader, how, elements, there, is_first=number == 0)[before]
            results.append(made)
            if line.is_sum and 0 < number < len(readers.pieces) - 1:
                shape = drafting.shape(last.outputs[0])
                results = [drafting.insert(last.id, drafting.dialect.operator("Add"), results, shape, "sum")]
        dim = line.results[0]
        join = drafting.dialect.operator("Add") if line.is_sum else drafting.dialect.join(int(dim))
        drafting.replace(last.id, join, results)
    for inner in sorted({reader.id for chain in readers.chains for reader, _ in chain[:-1]}, reverse=True):
        drafting.edit.remove(inner)
    drafting.edit.remove(node.id)


_SIZE_KEPT: Final = frozenset({Trait.ELEMENTWISE, Trait.NORMALISATION})
_CANNOT: Final = ("be moved", "it is no join that they read")

ELEMENTWISE_BEFORE_CONCAT: Final = pass_rule(
    "elementwise_before_concat",
    "element-wise operations run on the tensors that a concat joins",
    lambda graph, registry: Joins(graph, registry, _SIZE_KEPT).of,
    _on_pieces,
    _CANNOT,
)

POOL_BEFORE_CONCAT: Final = pass_rule(
    "pool_before_concat",
    "pools and means run on the tensors that a concat joins",
    lambda graph, registry: (
        Joins(graph, registry, frozenset({Trait.POOLING, Trait.REDUCTION}), _SIZE_KEPT).of
    ),
    _on_pieces,
    _CANNOT,
)

CONCAT_BEFORE_CONVOLUTION: Final = pass_rule(
    "concat_before_convolution",
    "convolutions and products of concatenated tensors add up those of the tensors",
    lambda graph, registry: (
        Joins(graph, registry, frozenset({Trait.CONVOLUTION, Trait.CONTRACTION}), _SIZE_KEPT, as_sum=True).of
    ),
    _on_pieces,
    _CANNOT,
    keeps_bits=False,
)
