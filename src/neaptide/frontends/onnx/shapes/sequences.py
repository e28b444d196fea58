"""A tensor that is cut into a sequence whose parts are taken at known places is a tensor that is cut: no sequence is left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from neaptide.frontends.onnx.constants.weights import weight_from
from neaptide.frontends.onnx.draft import Draft, attribute_value

if TYPE_CHECKING:
    from onnx import NodeProto

_LISTS_ARE_OPERANDS: Final = 13  # since this opset, lengths and axes are operands of Split and Squeeze


def without_sequences(draft: Draft) -> None:
    """Replaces each `SplitToSequence` by a `Split` where only `SequenceAt` with known positions use it. O(nodes).

    Types of operands must be known as far as they can be. What does not fit stays, and is refused later.
    """
    if not any(node.op_type == "SplitToSequence" for node in draft.nodes):
        return
    users: dict[str, list[tuple[int, NodeProto]]] = {}
    for place, node in enumerate(draft.nodes):
        for name in node.input:
            users.setdefault(name, []).append((place, node))
    outputs = {value.name for value in draft.outputs}
    found: dict[int, list[NodeProto]] = {}
    for place, node in enumerate(draft.nodes):
        if node.op_type == "SplitToSequence" and node.output[0] not in outputs:
            takers = users.get(node.output[0], [])
            positions = [_position(draft, taker, node.output[0]) for _, taker in takers]
            lengths = _lengths(draft, node)
            if lengths is None or not all(
                p is not None and -len(lengths) <= p < len(lengths) for p in positions
            ):
                continue
            found[place] = [_split(draft, node, lengths)]
            for (taken, taker), position in zip(takers, positions, strict=True):
                part = f"{node.output[0]}_part_{(position or 0) % len(lengths)}"
                found[taken] = [_taken(draft, node, part, taker.output[0])]
    draft.nodes[:] = [new for place, node in enumerate(draft.nodes) for new in found.get(place, [node])]


def _position(draft: Draft, taker: NodeProto, sequence: str) -> int | None:
    """Which part a node takes out of a sequence; None where it does something else, or nobody knows."""
    if taker.op_type != "SequenceAt" or taker.input[0] != sequence or taker.input[1] not in draft.known:
        return None
    return int(draft.known[taker.input[1]].reshape(-1)[0])


def _axis(draft: Draft, node: NodeProto) -> int:
    known = draft.types.get(node.input[0])
    axis = int(attribute_value(node, "axis", 0))
    return axis + len(known.shape) if axis < 0 and known is not None and known.shape is not None else axis


def _lengths(draft: Draft, node: NodeProto) -> list[int] | None:
    """How long the parts are; None where nobody knows."""
    known = draft.types.get(node.input[0])
    if known is None or known.shape is None:
        return None
    total = known.shape[_axis(draft, node)]
    if len(node.input) < 2 or not node.input[1]:
        return None if not isinstance(total, int) else [1] * total
    told = draft.known.get(node.input[1])
    if told is None:
        return None
    if told.ndim:
        return [int(length) for length in told]
    step = int(told)
    if not isinstance(total, int) or step < 1:
        return None
    return [min(step, total - begin) for begin in range(0, total, step)]


def _split(draft: Draft, node: NodeProto, lengths: list[int]) -> NodeProto:
    parts = [f"{node.output[0]}_part_{k}" for k in range(len(lengths))]
    return _with_list(draft, "Split", (node.input[0], "split", lengths), parts, axis=_axis(draft, node))


def _taken(draft: Draft, node: NodeProto, part: str, result: str) -> NodeProto:
    from onnx import helper

    is_cut_to_elements = len(node.input) < 2 or not node.input[1]
    if is_cut_to_elements and not attribute_value(node, "keepdims", 1):
        return _with_list(draft, "Squeeze", (part, "axes", [_axis(draft, node)]), [result])
    return helper.make_node("Identity", [part], [result], name=f"{node.name}_{result}")


def _with_list(
    draft: Draft, operator: str, operand: tuple[str, str, list[int]], results: list[str], **attributes: int
) -> NodeProto:
    """A node with a list of numbers, which is an operand or an attribute."""
    from onnx import helper

    value, name, numbers = operand
    if draft.opsets.get("", 1) < _LISTS_ARE_OPERANDS:
        return helper.make_node(
            operator, [value], results, name=f"{operator}_{results[0]}", **{name: numbers}, **attributes
        )
    listed = f"{results[0]}_{name}"
    array = np.array(numbers, dtype=np.int64)
    draft.weights[listed], draft.known[listed] = weight_from(array), array
    return helper.make_node(operator, [value, listed], results, name=f"{operator}_{results[0]}", **attributes)
