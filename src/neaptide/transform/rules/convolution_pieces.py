"""Puts the convolutions of pieces, and their gradients, in the place of those of the whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from neaptide.ir.edit import GraphEdit, NodeDraft
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Arg, Node, Ref
from neaptide.ir.values import Value
from neaptide.ops.rewritten import ADD_ONTO, CHANNELS, GRADIENTS_MASK, JOIN, SLICE
from neaptide.symbolic.size_expr import SizeExpr


@dataclass(frozen=True, slots=True)
class Piece:
    """One of the tensors that are joined.

    Attributes:
        begin: number of its first channel in the join.
        end: one past its last.
    """

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
        added = (
            result.id
            if is_last
            else edit.alias(
                f"{result.name}_so_far", result.dtype, result.shape, result.strides, result.offset, of=total
            )
        )
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
    """Replace the gradients of a convolution of a join by those of the pieces.

    Args:
        cuts: by piece, nodes that cut its gradient out of that of the join; they go.
    """
    mask = node.args[GRADIENTS_MASK]
    assert isinstance(mask, tuple)
    of_input, of_weight, of_bias = map(bool, mask)
    made = iter(node.outputs[1:] if of_input else node.outputs)
    weights, whole_weight = [], next(made) if of_weight else None
    bias = next(made) if of_bias else None
    draft = edit.draft(node.id)
    for number, piece in enumerate(pieces):
        weight = _cut_weight(edit, graph, node, 2, piece)
        outputs: list[int] = []
        shown: list[Arg] = []

        def give(value: int | None, outputs: list[int] = outputs, shown: list[Arg] = shown) -> None:
            shown.append(None if value is None else Ref(len(outputs)))
            outputs.extend(() if value is None else (value,))

        operand = graph.values[piece.value]
        give(
            _like(edit, graph, operand, f"{operand.name}_gradient", operand.shape)
            if cuts.get(number)
            else None
        )
        if whole_weight is not None:
            like = graph.values[whole_weight]
            shape = (
                *like.shape[:CHANNELS],
                SizeExpr.const(piece.end - piece.begin),
                *like.shape[CHANNELS + 1 :],
            )
            weights.append(_like(edit, graph, like, f"{like.name}_of_piece_{number}", shape))
        give(weights[-1] if of_weight else None)
        give(bias if number == 0 else None)
        if not outputs:
            continue
        wanted = tuple(item is not None for item in shown)
        swapped = draft.with_input(_input(node, 1), piece.value).with_input(_input(node, 2), weight)
        args = (*draft.args[:GRADIENTS_MASK], wanted, *draft.args[GRADIENTS_MASK + 1 :])
        edit.insert_before(node.id, replace(swapped, outputs=tuple(outputs), args=args, results=tuple(shown)))
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
    stride = weight.strides[CHANNELS]
    shape = (*weight.shape[:CHANNELS], SizeExpr.const(piece.end - piece.begin), *weight.shape[CHANNELS + 1 :])
    cut = edit.alias(
        f"{weight.name}_of_{graph.values[piece.value].name}",
        weight.dtype,
        shape,
        weight.strides,
        weight.offset + stride * piece.begin,
        of=weight.id,
    )
    args = (Ref(0), CHANNELS, piece.begin, piece.end)
    edit.insert_before(node.id, NodeDraft(SLICE, (weight.id,), (cut,), args, reads=(), source=node.source))
    return cut


def _like(edit: GraphEdit, graph: Graph, value: Value, name: str, shape: Sequence[SizeExpr]) -> int:
    """A dense value on the device of another one."""
    assert value.storage is not None
    return edit.fresh(name, value.dtype, shape, device=graph.storages[value.storage].device)


def _input(node: Node, position: int) -> int:
    arg = node.args[position]
    assert isinstance(arg, Ref)
    return node.inputs[arg.slot]


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
