"""Convolutions of joined tensors, and products in models, add up those of the pieces, and nothing is joined.

A decoder with skips joins what comes from below with what the encoder kept, and convolves the join. The join is a copy of
both, and it stays for the backward although the pieces often stay as well. A convolution is a sum over channels, so the
pieces can be convolved by themselves, with the part of the weight that reads them. (Distributivity, as TASO uses it the
other way round: Jia et al., SOSP 2019; of models: Ahn et al., MLSys 2020.) Only where such operations and gradients of
convolutions alone use the join, and its gradient in the same pieces.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node, Ref
from neaptide.ir.registry import OpRegistry
from neaptide.ops.aten.dialect import (
    CHANNELS,
    CONVOLUTION_GRADIENTS,
    GRADIENTS_GROUPS,
    GRADIENTS_MASK,
    GRADIENTS_TRANSPOSED,
    SLICE,
)
from neaptide.ops.dialect import dialect_of
from neaptide.transform.drafting import Drafting, resized
from neaptide.transform.joins import Chain, Joins, Piece, run_on_pieces
from neaptide.transform.node_rule import is_row_major, node_rule, operand_at

Cuts = Mapping[int, tuple[int, ...]]
"""By number of a piece, the nodes that cut its gradient out of that of the join."""


@dataclass(frozen=True, slots=True)
class _Place:
    """A join that may go; `backward` has nodes that make gradients."""

    pieces: tuple[Piece, ...]
    forward: tuple[Chain, ...]
    backward: tuple[tuple[int, Cuts], ...]


class _Places:
    """Which joins of a graph may go. O(size of the graph) to make."""

    def __init__(self, graph: Graph, registry: OpRegistry) -> None:
        self.graph = graph
        words = dialect_of(graph)
        self.joins = Joins(graph, registry, words.summed, words.kept, as_sum=True)

    def of(self, node: Node) -> _Place | str | None:
        """What a join is made of; why it stays; None where it is none."""
        found = self.joins.pieces(node)
        if not isinstance(found, tuple):
            return found
        dim, pieces = found
        forward: list[Chain] = []
        backward: list[tuple[int, Cuts]] = []
        for user in self.joins.readers(node):
            if user.op == CONVOLUTION_GRADIENTS:
                cuts = self._objection(user, node.outputs[0]) or self._cuts(user, pieces)
                if isinstance(cuts, str):
                    return cuts
                backward.append((user.id, cuts))
                continue
            ways = self.joins.ways(user, node.outputs[0], dim)
            if isinstance(ways, str):
                return ways
            forward += ways
        return _Place(pieces, tuple(forward), tuple(backward)) if forward else "nothing adds up what it joins"

    def _objection(self, node: Node, joined: int) -> str | None:
        """Why gradients of a convolution are no sums over pieces of its input."""
        operands = [operand_at(node, position) for position in range(3)]
        if (
            node.kwargs
            or len(node.args) <= GRADIENTS_GROUPS
            or operands.count(joined) != 1
            or operands[1] != joined
        ):
            return "a convolution has it in another place"
        if node.args[GRADIENTS_TRANSPOSED] is not False or node.args[GRADIENTS_GROUPS] != 1:
            return "a convolution is transposed or in groups"
        values = [self.graph.values[value] for value in (*node.inputs, *node.outputs)]
        return None if all(map(is_row_major, values)) else "a convolution has operands of another layout"

    def _cuts(self, node: Node, pieces: tuple[Piece, ...]) -> Cuts | str:
        """The nodes that cut the gradient of a join into pieces."""
        mask = node.args[GRADIENTS_MASK] if len(node.args) > GRADIENTS_MASK else None
        if not isinstance(mask, tuple) or sum(map(bool, mask)) != len(node.outputs):
            return "gradients are asked for in another way"
        if not mask[0]:
            return {}
        whole, found = node.outputs[0], dict[int, tuple[int, ...]]()
        for user in dict.fromkeys(self.joins.users[whole]):
            cut = self.graph.nodes[user]
            number = next((number for number, piece in enumerate(pieces) if _is_cut(cut, piece)), None)
            if number is None or whole in self.joins.outputs:
                return "its gradient is used other than in its pieces"
            if not self._may_be_dense(cut):
                return "a piece of its gradient is looked at in another layout"
            found[number] = (*found.get(number, ()), user)
        return found

    def _may_be_dense(self, cut: Node) -> bool:
        """Whether what uses a piece of a gradient makes the same of one that lies without gaps."""
        value = cut.outputs[0]
        return value not in self.joins.outputs and all(
            self.graph.created_storages(user)
            and all(is_row_major(self.graph.values[v]) for v in user.outputs)
            for user in (self.graph.nodes[number] for number in self.joins.users[value])
        )


def _is_cut(node: Node, piece: Piece) -> bool:
    """Whether a node cuts out the channels of a piece."""
    expected = (CHANNELS, *piece.elements, 1)
    return (
        node.op == SLICE and not node.kwargs and (*node.args[1:], 1)[:4] == expected and len(node.args) >= 4
    )


def _gradients_of_pieces(drafting: Drafting, node: Node, pieces: Sequence[Piece], cuts: Cuts) -> None:
    """Replace the gradients of a convolution of a join by those of the pieces. Nodes that cut them out of that of the join go."""
    graph, edit, mask = drafting.graph, drafting.edit, node.args[GRADIENTS_MASK]
    assert isinstance(mask, tuple)
    of_input, of_weight, of_bias = map(bool, mask)
    made = iter(node.outputs[1:] if of_input else node.outputs)
    weights, whole_weight = [], next(made) if of_weight else None
    bias = next(made) if of_bias else None
    draft = edit.draft(node.id)
    joined, weight = (operand_at(node, position) for position in (1, 2))
    assert joined is not None
    assert weight is not None
    for number, piece in enumerate(pieces):
        part = drafting.cut(node.id, weight, CHANNELS, *piece.elements, name="weight")
        of_piece = _like(drafting, piece.value, node) if cuts.get(number) else None
        of_part = None if whole_weight is None else _like(drafting, whole_weight, node, piece)
        given = (of_piece, of_part, bias if number == 0 else None)
        outputs = tuple(value for value in given if value is not None)
        if of_part is not None:
            weights.append(of_part)
        if not outputs:
            continue
        shown = tuple(None if value is None else Ref(outputs.index(value)) for value in given)
        wanted = tuple(value is not None for value in given)
        swapped = draft.with_input(joined, piece.value).with_input(weight, part)
        args = (*draft.args[:GRADIENTS_MASK], wanted, *draft.args[GRADIENTS_MASK + 1 :])
        edit.insert_before(node.id, replace(swapped, outputs=outputs, args=args, results=shown))
        for cut in cuts.get(number, ()):
            edit.replace_uses(graph.nodes[cut].outputs[0], outputs[0])
            edit.remove(cut)
    if whole_weight is None:
        edit.remove(node.id)
    else:
        drafting.replace(node.id, drafting.dialect.join(CHANNELS), weights, (whole_weight,))


def _like(drafting: Drafting, value: int, node: Node, piece: Piece | None = None) -> int:
    """A value for the gradient of another one, or of the channels of it that belong to a piece."""
    like = drafting.graph.values[value]
    shape = like.shape
    if piece is not None:
        begin, end = piece.elements
        shape = resized(shape, CHANNELS, end - begin)
    return drafting.fresh(shape, like.dtype, f"{like.name}_gradient", like=node)


def _put(drafting: Drafting, node: Node, place: _Place) -> None:
    run_on_pieces(drafting, node.outputs[0], place.pieces, place.forward)
    for number, cuts in place.backward:
        _gradients_of_pieces(drafting, drafting.graph.nodes[number], place.pieces, cuts)
    drafting.edit.remove(node.id)


CONCAT_BEFORE_CONVOLUTION: Final = node_rule(
    name="concat_before_convolution",
    summary="convolutions of concatenated tensors add up those of the pieces",
    pattern=lambda graph, registry: _Places(graph, registry).of,
    change=_put,
    cannot=("go", "it is not what a convolution reads"),
    keeps_bits=False,
    apart=True,
)
