"""Convolutions of joined tensors add up those of the pieces, and nothing is joined.

A decoder with skips joins what comes from below with what the encoder kept, and convolves the join. The join is a copy of
both, and it stays for the backward although the pieces often stay as well. A convolution is a sum over channels, so the
pieces can be convolved by themselves, with the part of the weight that reads them. (Distributivity, as TASO uses it the
other way round: Jia et al., SOSP 2019.) Only where convolutions and their gradients alone use the join, and its gradient in the
same pieces.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from neaptide.ir.edit import GraphEdit, NodeDraft
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node, Ref
from neaptide.ir.values import Value
from neaptide.ops.rewritten import (
    ADD_ONTO,
    CHANNELS,
    CONVOLUTION,
    CONVOLUTION_GRADIENTS,
    GRADIENTS_GROUPS,
    GRADIENTS_MASK,
    GRADIENTS_TRANSPOSED,
    GROUPS,
    JOIN,
    SLICE,
    TRANSPOSED,
)
from neaptide.symbolic.size_expr import SizeExpr
from neaptide.transform.rules.node_rule import Uses, alias_like, is_row_major, node_rule, operand_at


@dataclass(frozen=True, slots=True)
class Piece:
    """One of the tensors that are joined, and its channels in the join from `begin` to before `end`."""

    value: int
    begin: int
    end: int


def add_pieces(edit: GraphEdit, graph: Graph, node: Node, pieces: Sequence[Piece]) -> None:
    """Replace a convolution of a join by the sum of those of the pieces; the first one has the bias."""
    draft, result = edit.draft(node.id), graph.values[node.outputs[0]]
    total = -1
    for number, piece in enumerate(pieces):
        weight = _cut_weight(edit, graph, node, 1, piece)
        part = _like(edit, graph, result, f"{result.name}_of_piece_{number}", result.shape)
        swapped = draft.with_input(_input(node, 0), piece.value).with_input(_input(node, 1), weight)
        if number:
            swapped = _without(swapped, 2)
        edit.insert_before(node.id, replace(swapped, outputs=(part,)))
        if not number:
            total = part
            continue
        is_last = number == len(pieces) - 1
        added = result.id if is_last else alias_like(edit, result, total, f"{result.name}_so_far")
        add = NodeDraft(
            ADD_ONTO, (total, part), (added,), (Ref(0), Ref(1)), writes=(total,), source=node.source
        )
        if is_last:
            edit.replace_node(node.id, add)
            edit.place_on(added, total)
        else:
            edit.insert_before(node.id, add)
        total = added


def gradients_of_pieces(
    edit: GraphEdit, graph: Graph, node: Node, pieces: Sequence[Piece], cuts: Mapping[int, Sequence[int]]
) -> None:
    """Replace the gradients of a convolution of a join by those of the pieces. Nodes that cut them out of that of the join go."""
    mask = node.args[GRADIENTS_MASK]
    assert isinstance(mask, tuple)
    of_input, of_weight, of_bias = map(bool, mask)
    made = iter(node.outputs[1:] if of_input else node.outputs)
    weights, whole_weight = [], next(made) if of_weight else None
    bias = next(made) if of_bias else None
    draft = edit.draft(node.id)
    for number, piece in enumerate(pieces):
        weight = _cut_weight(edit, graph, node, 2, piece)
        operand = graph.values[piece.value]
        of_piece: int | None = None
        of_weight_part: int | None = None
        if cuts.get(number):
            of_piece = _like(edit, graph, operand, f"{operand.name}_gradient", operand.shape)
        if whole_weight is not None:
            like = graph.values[whole_weight]
            shape = _of_channels(like, piece)
            of_weight_part = _like(edit, graph, like, f"{like.name}_of_piece_{number}", shape)
            weights.append(of_weight_part)
        given = (of_piece, of_weight_part, bias if number == 0 else None)
        outputs = tuple(value for value in given if value is not None)
        if not outputs:
            continue
        shown = tuple(None if value is None else Ref(outputs.index(value)) for value in given)
        wanted = tuple(value is not None for value in given)
        swapped = draft.with_input(_input(node, 1), piece.value).with_input(_input(node, 2), weight)
        args = (*draft.args[:GRADIENTS_MASK], wanted, *draft.args[GRADIENTS_MASK + 1 :])
        edit.insert_before(node.id, replace(swapped, outputs=outputs, args=args, results=shown))
        for cut in cuts.get(number, ()):
            edit.replace_uses(graph.nodes[cut].outputs[0], outputs[0])
            edit.remove(cut)
    if whole_weight is None:
        edit.remove(node.id)
        return
    listed = tuple(Ref(slot) for slot in range(len(weights)))
    join = NodeDraft(JOIN, tuple(weights), (whole_weight,), (listed, CHANNELS), source=node.source)
    edit.replace_node(node.id, join)


def _cut_weight(edit: GraphEdit, graph: Graph, node: Node, position: int, piece: Piece) -> int:
    """The part of a weight that reads a piece."""
    weight = graph.values[_input(node, position)]
    cut = edit.alias(
        f"{weight.name}_of_{graph.values[piece.value].name}",
        weight.dtype,
        _of_channels(weight, piece),
        weight.strides,
        weight.offset + weight.strides[CHANNELS] * piece.begin,
        of=weight.id,
    )
    args = (Ref(0), CHANNELS, piece.begin, piece.end)
    edit.insert_before(node.id, NodeDraft(SLICE, (weight.id,), (cut,), args, reads=(), source=node.source))
    return cut


def _of_channels(weight: Value, piece: Piece) -> tuple[SizeExpr, ...]:
    """The shape of a weight that reads a piece alone."""
    return (*weight.shape[:CHANNELS], SizeExpr.const(piece.end - piece.begin), *weight.shape[CHANNELS + 1 :])


def _like(edit: GraphEdit, graph: Graph, value: Value, name: str, shape: Sequence[SizeExpr]) -> int:
    """A dense value on the device of another one."""
    assert value.storage is not None
    return edit.fresh(name, value.dtype, shape, device=graph.storages[value.storage].device)


def _input(node: Node, position: int) -> int:
    value = operand_at(node, position)
    assert value is not None
    return value


def _without(draft: NodeDraft, position: int) -> NodeDraft:
    """A draft that is called with None instead of an operand."""
    arg = draft.args[position]
    if not isinstance(arg, Ref):
        return draft
    gone = draft.inputs[arg.slot]
    args = tuple(
        Ref(item.slot - (item.slot > arg.slot)) if isinstance(item, Ref) else item
        for item in (*draft.args[:position], None, *draft.args[position + 1 :])
    )
    inputs = tuple(value for value in draft.inputs if value != gone)
    reads = None if draft.reads is None else tuple(value for value in draft.reads if value != gone)
    return replace(draft, inputs=inputs, args=args, reads=reads)


@dataclass(frozen=True, slots=True)
class _Place:
    """A join that may go; `backward` has nodes that make gradients, each with those that cut that of the join, by piece."""

    pieces: tuple[Piece, ...]
    forward: tuple[int, ...]
    backward: tuple[tuple[int, dict[int, tuple[int, ...]]], ...]


class _Places:
    """Which joins of a graph may go. O(size of the graph) to make."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.users = graph.consumers()
        self.outputs = set(graph.outputs)
        self.uses = Uses(graph)

    def of(self, node: Node) -> _Place | str | None:
        """What a join is made of; why it stays; None where it is none that a convolution reads."""
        pieces = self._pieces(node)
        if pieces is None:
            return None
        users = [self.graph.nodes[user] for user in dict.fromkeys(self.users[node.outputs[0]])]
        if not any(user.op == CONVOLUTION for user in users):
            return None
        if node.outputs[0] in self.outputs:
            return "it is handed back"
        if len(pieces) < 2:
            return "it joins one tensor"
        if any(user.op not in (CONVOLUTION, CONVOLUTION_GRADIENTS) for user in users):
            return "others than convolutions use it"
        joined = self.graph.values[node.outputs[0]]
        if any(not is_row_major(self.graph.values[value]) for value in (*node.inputs, joined.id)):
            return "channels do not lie after each other"
        storages = [self.graph.values[value].storage for value in (*node.inputs, joined.id)]
        if any(self.uses.written_between(one, node.id, len(self.graph.nodes)) for one in storages):
            return "a piece is written into after the join"
        return self._place(users, joined, pieces)

    def _place(self, users: list[Node], joined: Value, pieces: tuple[Piece, ...]) -> _Place | str:
        """With what uses a join."""
        forward, backward = [], []
        for user in users:
            if user.op == CONVOLUTION:
                if reason := self._objection(user, 0, TRANSPOSED, GROUPS, joined.id):
                    return reason
                forward.append(user.id)
                continue
            if reason := self._objection(user, 1, GRADIENTS_TRANSPOSED, GRADIENTS_GROUPS, joined.id):
                return reason
            cuts = self._cuts(user, pieces)
            if isinstance(cuts, str):
                return cuts
            backward.append((user.id, cuts))
        return _Place(pieces, tuple(forward), tuple(backward))

    def _objection(self, node: Node, place: int, transposed: int, groups: int, joined: int) -> str | None:
        """Why a convolution, or its gradients, are no sums over pieces of the operand at a place."""
        operands = [operand_at(node, position) for position in range(place + 2)]
        if (
            node.kwargs
            or len(node.args) <= groups
            or operands.count(joined) != 1
            or operands[place] != joined
        ):
            return "a convolution has it in another place"
        if node.args[transposed] is not False or node.args[groups] != 1:
            return "a convolution is transposed or in groups"
        values = [self.graph.values[value] for value in (*node.inputs, *node.outputs)]
        return None if all(map(is_row_major, values)) else "a convolution has operands of another layout"

    def _cuts(self, node: Node, pieces: tuple[Piece, ...]) -> dict[int, tuple[int, ...]] | str:
        """The nodes that cut the gradient of a join, by number of the piece."""
        mask = node.args[GRADIENTS_MASK] if len(node.args) > GRADIENTS_MASK else None
        if not isinstance(mask, tuple) or sum(map(bool, mask)) != len(node.outputs):
            return "gradients are asked for in another way"
        if not mask[0]:
            return {}
        whole, found = node.outputs[0], dict[int, tuple[int, ...]]()
        for user in dict.fromkeys(self.users[whole]):
            cut = self.graph.nodes[user]
            number = next((number for number, piece in enumerate(pieces) if _is_cut(cut, piece)), None)
            if number is None or whole in self.outputs:
                return "its gradient is used other than in its pieces"
            if not self._may_be_dense(cut):
                return "a piece of its gradient is looked at in another layout"
            found[number] = (*found.get(number, ()), user)
        return found

    def _may_be_dense(self, cut: Node) -> bool:
        """Whether what uses a piece of a gradient makes the same of one that lies without gaps."""
        value = cut.outputs[0]
        return value not in self.outputs and all(
            self.graph.created_storages(user)
            and all(is_row_major(self.graph.values[v]) for v in user.outputs)
            for user in (self.graph.nodes[number] for number in self.users[value])
        )

    def _pieces(self, node: Node) -> tuple[Piece, ...] | None:
        """What a join of channels joins, each with its channels; None where it is no such join."""
        if node.op != JOIN or node.kwargs or len(node.args) != 2 or node.args[1] != CHANNELS:
            return None
        listed = node.args[0]
        if not isinstance(listed, tuple):
            return None
        pieces, begin = [], 0
        for item in listed:
            value = self.graph.values[node.inputs[item.slot]] if isinstance(item, Ref) else None
            if value is None or len(value.shape) < 3 or not value.shape[CHANNELS].is_constant:
                return None
            end = begin + value.shape[CHANNELS].constant_value()
            pieces.append(Piece(value.id, begin, end))
            begin = end
        return tuple(pieces)


def _is_cut(node: Node, piece: Piece) -> bool:
    """Whether a node cuts out the channels of a piece."""
    expected = (CHANNELS, piece.begin, piece.end, 1)
    return (
        node.op == SLICE and not node.kwargs and (*node.args[1:], 1)[:4] == expected and len(node.args) >= 4
    )


def _convolve_pieces(edit: GraphEdit, graph: Graph, node: Node, place: _Place) -> None:
    for number in place.forward:
        add_pieces(edit, graph, graph.nodes[number], place.pieces)
    for number, cuts in place.backward:
        gradients_of_pieces(edit, graph, graph.nodes[number], place.pieces, cuts)
    edit.remove(node.id)


CONCAT_BEFORE_CONVOLUTION = node_rule(
    name="concat_before_convolution",
    summary="convolutions of concatenated tensors add up those of the pieces",
    pattern=lambda graph, _: _Places(graph).of,
    change=_convolve_pieces,
    cannot=("go", "it is not what a convolution reads"),
    keeps_bits=False,
    apart=True,
)
