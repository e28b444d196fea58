"""Joins whose users can run on the tensors that are joined: which these are, and how they do.

(Motion of joins, as in TASO: Jia et al., SOSP 2019; the sum of partial convolutions is Serenity's: Ahn et al., MLSys 2020.)
An operation for each piece may take more bytes than before, and often makes the join or what it holds unnecessary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from neaptide.analysis.folded import folded_values
from neaptide.ir.axes import OpAxis
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node, refs
from neaptide.ir.registry import OpRegistry, Trait
from neaptide.ops.axes.forms import dim_of
from neaptide.ops.dialect import dialect_of, operands_of
from neaptide.transform.drafting import Drafting
from neaptide.transform.node_rule import Uses, is_row_major
from neaptide.transform.part_reading import AxisFinder, Interval, bytes_of_values, extent
from neaptide.transform.part_writer import PartWriter

_SMALL: Final = 16
"""What is copied to be cut beside the pieces of a join takes at most such a part of it."""

Chain = tuple[tuple[Node, OpAxis], ...]
"""Nodes that run on a piece one after another, each with the axis along which it does."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A tensor that is joined, and its elements in the join."""

    value: int
    elements: Interval


@dataclass(frozen=True, slots=True)
class Readers:
    """What reads a join."""

    pieces: tuple[Piece, ...]
    chains: tuple[Chain, ...]


class Joins:
    """Joins of a graph, and what of their users may run on pieces. O(size) to make.

    Args:
        traits: of readers that may, one of each join at least.
        beside: of others that may with them.
        as_sum: they add up along the axis of the join; else they keep it, and what follows them may run on pieces too.
    """

    def __init__(
        self,
        graph: Graph,
        registry: OpRegistry,
        traits: frozenset[Trait],
        beside: frozenset[Trait] = frozenset(),
        *,
        as_sum: bool = False,
    ) -> None:
        self.graph, self.registry, self.as_sum = graph, registry, as_sum
        self.traits, self.beside = traits, beside
        self.finder, self.users, self.uses = AxisFinder(graph, registry), graph.consumers(), Uses(graph)
        self.weights, self.outputs = folded_values(graph), set(graph.outputs)
        self.dialect = dialect_of(graph)

    def of(self, node: Node) -> Readers | str | None:
        """How the users of a join run on pieces; why they do not; None where it is no join."""
        found = self.pieces(node)
        if not isinstance(found, tuple):
            return found
        dim, pieces = found
        users, chains = self.readers(node), list[Chain]()
        if users and not any(self._is_a(user, self.traits) for user in users):
            return f"{users[0].op} uses it"
        for user in users:
            ways = self.ways(user, node.outputs[0], dim)
            if isinstance(ways, str):
                return ways
            chains += ways
        return Readers(pieces, tuple(chains)) if chains else "nothing uses it"

    def readers(self, node: Node) -> list[Node]:
        """The users of a join."""
        return [self.graph.nodes[user] for user in dict.fromkeys(self.users[node.outputs[0]])]

    def pieces(self, node: Node) -> tuple[int, tuple[Piece, ...]] | str | None:
        """The dim along which a node joins, and what; why that may not be moved; None where it is no join."""
        said = self.dialect.joined_dim(node)
        if said is None or node.outputs[0] in self.weights:
            return None
        joined = self.graph.values[node.outputs[0]]
        dim = dim_of(said, len(joined.shape))
        values = [node.inputs[ref.slot] for arg in node.args for ref in refs(arg)]
        if len(values) < 2:
            return "it joins one tensor"
        if dim is None or not all(self.graph.values[value].shape[dim].is_constant for value in values):
            return "sizes along its axis are symbolic"
        if joined.id in self.outputs:
            return "it is handed back"
        if not all(is_row_major(self.graph.values[value]) for value in (*values, joined.id)):
            return "its elements do not lie after each other"
        storages = [self.graph.values[value].storage for value in (*values, joined.id)]
        if any(self.uses.written_between(one, node.id, len(self.graph.nodes)) for one in storages):
            return "a piece is written into after the join"
        pieces, begin = [], 0
        for value in values:
            end = begin + extent(self.graph, value, dim)
            pieces.append(Piece(value, (begin, end)))
            begin = end
        return dim, tuple(pieces)

    def ways(self, node: Node, joined: int, dim: int) -> list[Chain] | str:
        """What runs on pieces, beginning with a reader: each way to what adds up the axis, or the one as far as it is kept."""
        return self._sums(node, joined, dim) if self.as_sum else self._kept(node, joined, dim)

    def _kept(self, node: Node, joined: int, dim: int) -> list[Chain] | str:
        """What keeps the axis, one after another, beginning with a node."""
        found: list[tuple[Node, OpAxis]] = []
        while True:
            axis = self._axis(node, joined, dim)
            if isinstance(axis, str):
                return [tuple(found)] if found else axis
            found.append((node, axis))
            (joined,) = node.outputs
            users, how = self.users[joined], axis.results[0]
            if not isinstance(how, int) or len(users) != 1 or joined in self.outputs:
                return [tuple(found)]
            node, dim = self.graph.nodes[users[0]], how

    def _sums(self, node: Node, joined: int, dim: int) -> list[Chain] | str:
        """Each way from a node to what adds up the axis; what lies on several ways runs for each of them."""
        axis = self._axis(node, joined, dim)
        if isinstance(axis, str):
            return axis
        if axis.is_sum:
            return [((node, axis),)]
        (made,), how = node.outputs, axis.results[0]
        if not isinstance(how, int) or made in self.outputs or not self._is_a(node, self.beside):
            return f"{node.op} keeps its axis"
        chains: list[Chain] = []
        for user in self.users[made]:
            found = self._sums(self.graph.nodes[user], made, how)
            if isinstance(found, str):
                return found
            chains += [((node, axis), *way) for way in found]
        return chains

    def _axis(self, node: Node, joined: int, dim: int) -> OpAxis | str:
        if not self._is_a(node, self.traits | self.beside) or len(node.outputs) != 1:
            return f"{node.op} uses it"
        axis = self.finder.find(node, {s: dim for s, v in enumerate(node.inputs) if v == joined})
        if axis is None or axis.window is not None:
            return f"{node.op} needs all of its axis at once"
        if axis.is_sum and not self.as_sum:
            return f"{node.op} adds up along its axis"
        others = {node.inputs[slot] for slot in axis.operands} - {joined} - self.weights
        sizes = self.graph.remembered(bytes_of_values)
        copied = 0 if self.dialect.cut(0, 0, 1).is_view else sum(sizes[value] for value in others)
        if copied > sizes[joined] // _SMALL:
            return f"{node.op} has another operand that would be cut"
        if axis.is_sum and operands_of(node).count(joined) > 1:
            return f"{node.op} multiplies it by itself"
        if not all(is_row_major(self.graph.values[value]) for value in (*node.inputs, *node.outputs)):
            return f"{node.op} has operands of another layout"
        return axis

    def _is_a(self, node: Node, traits: frozenset[Trait]) -> bool:
        spec = self.registry.find(node.op)
        return spec is not None and not traits.isdisjoint(spec.traits)


def run_on_pieces(drafting: Drafting, joined: int, pieces: Sequence[Piece], chains: Sequence[Chain]) -> None:
    """Run what reads a join on its pieces; the result of each chain is their join, or their sum."""

    def results(chain: Chain) -> Iterator[int]:
        writer = PartWriter(drafting, chain[-1][0].id)
        for number, piece in enumerate(pieces):
            made, elements, before = piece.value, piece.elements, joined
            for reader, axis in chain:
                there = {before: (made, elements)}
                (before,) = reader.outputs
                made, elements = writer.write(reader, axis, elements, there, is_first=number == 0)[before]
            yield made

    for chain in chains:
        last, axis = chain[-1]
        dim = axis.results[0]
        drafting.merge(last.id, dim if isinstance(dim, int) else None, len(pieces), results(chain))
    for inner in sorted({reader.id for chain in chains for reader, _ in chain[:-1]}, reverse=True):
        drafting.edit.remove(inner)
