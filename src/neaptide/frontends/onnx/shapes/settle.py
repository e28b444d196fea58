"""Every shape becomes known, and what is arithmetic on shapes is done: what is left are tensors that the model computes."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Final

import numpy as np

from neaptide.errors import UnsupportedModel
from neaptide.frontends.onnx.checks import check_shape
from neaptide.frontends.onnx.constants.evaluate import evaluate
from neaptide.frontends.onnx.constants.weights import weight_from
from neaptide.frontends.onnx.draft import Draft, TensorType, attribute_value, subgraphs
from neaptide.frontends.onnx.model import Array
from neaptide.frontends.onnx.shapes.inference import check_known, infer_node, infer_types
from neaptide.frontends.onnx.shapes.sequences import without_sequences

if TYPE_CHECKING:
    from onnx import NodeProto

MOST_ELEMENTS: Final = 4096
"""Of a tensor that counts as arithmetic on shapes."""
_MOST_FRACTIONS: Final = 16
_INTEGERS: Final = frozenset({"int64", "int32", "bool"})
_FRACTIONS: Final = frozenset({"float32", "float64"})
_OF_SHAPES: Final = frozenset({"Shape", "Size"})
_FILLS: Final = frozenset({"ConstantOfShape", "EyeLike"})
"""Of whole numbers they belong to shapes, of others they make weights."""
# What makes weights, or other numbers at each run, stays a node.
_LEFT: Final = frozenset({
    "RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike",
    "Bernoulli", "Multinomial", "Dropout", "QuantizeLinear", "DequantizeLinear",
})  # fmt: skip


def settle(draft: Draft) -> None:
    """Works out the types of all values and the arithmetic on shapes, and drops nodes that nothing needs. O(size).

    Raises:
        UnsupportedModel: a shape depends on the numbers that the model is given.
    """
    for name, weight in draft.weights.items():
        if _is_small(weight.dtype, weight.shape) and name not in draft.replaceable:
            draft.known[name] = weight.array()
    infer_types(draft)
    without_sequences(draft)
    for name, weight in draft.weights.items():
        draft.types[name] = TensorType(weight.dtype, weight.shape)
    while (kept := _settled(draft)) is None:
        pass
    draft.nodes[:] = _needed(draft, kept)


def _settled(draft: Draft) -> list[NodeProto] | None:
    """Nodes that are no arithmetic on shapes; None where a weight that the caller might replace became fixed on the way."""
    kept = []
    for node in draft.nodes:
        why = _settle_types(draft, node)
        if _work_out(draft, node):
            continue
        if not _has_types(draft, node) and _fix_numbers(draft, node):
            return None
        check_known(draft, node, why)
        _check_bytes(draft, node)
        kept.append(node)
    return kept


def _has_types(draft: Draft, node: NodeProto) -> bool:
    return all((t := draft.types.get(name)) is not None and t.is_known for name in node.output if name)


def _fix_numbers(draft: Draft, node: NodeProto) -> bool:
    """Fixes small weights if then the operands of a node are known; whether there were any."""
    behind = dict.fromkeys(
        draft.known, frozenset[str]()
    )  # by value, the weights to be fixed before it is known
    for name in draft.replaceable:
        if _is_small(draft.weights[name].dtype, draft.weights[name].shape):
            behind[name] = frozenset({name})
    for other in draft.nodes:
        if all(not name or name in behind for name in other.input):
            made = frozenset().union(*(behind[name] for name in other.input if name))
            behind |= {name: made for name in other.output if name and name not in behind}
    found = frozenset().union(*(behind.get(name, ()) for name in node.input))
    draft.known |= {name: draft.weights[name].array() for name in found}
    draft.replaceable -= found
    return bool(found)


def _settle_types(draft: Draft, node: NodeProto) -> str:
    """Types of what a node makes; in words why one is not known, or nothing."""
    if _has_types(draft, node):
        return ""
    operands = {name: draft.types[name] for name in node.input if name in draft.types}
    if any(name and name not in operands for name in node.input):
        return "one of its operands is no tensor of known type"
    for inner in subgraphs(node):
        names = (name for each in inner.node for name in each.input)
        operands.update({name: draft.types[name] for name in names if name in draft.types})
    return infer_node(draft, node, operands)


def _work_out(draft: Draft, node: NodeProto) -> bool:
    """Whether a node is arithmetic on shapes, whose results are known now."""
    if node.domain not in {"", "ai.onnx"} or node.op_type in _LEFT or any(subgraphs(node)):
        return False
    if node.op_type in _OF_SHAPES:
        arrays = _shape_of(draft, node)
    elif not _has_known_operands(draft, node):
        return False
    else:
        operands = {name: draft.known[name] for name in node.input if name}
        try:
            arrays = evaluate(node, operands, draft.opsets)
        except UnsupportedModel:
            # The reference does not know this operator: the node stays, and makes a weight.
            return False
    if arrays is None:
        return False
    made = {name: weight_from(a) for name, a in zip(filter(None, node.output), arrays, strict=True)}
    draft.types.update({name: TensorType(weight.dtype, weight.shape) for name, weight in made.items()})
    if not all(_is_small(weight.dtype, weight.shape) for weight in made.values()):
        return False
    draft.weights.update(made)
    draft.known.update({name: weight.array() for name, weight in made.items()})
    return True


def _has_known_operands(draft: Draft, node: NodeProto) -> bool:
    """Whether all operands are small and known, and the results are small as far as their shapes are known."""
    if not node.input or any(name and name not in draft.known for name in node.input):
        return False
    types = [draft.types.get(name) for name in node.output if name]
    if node.op_type in _FILLS and not all(known is not None and known.dtype in _INTEGERS for known in types):
        return False
    return all(map(_may_be_known, types))


def _shape_of(draft: Draft, node: NodeProto) -> list[Array] | None:
    """What `Shape` or `Size` says of a tensor whose dims are numbers."""
    known = draft.types.get(node.input[0])
    if known is None or known.shape is None or not all(isinstance(dim, int) for dim in known.shape):
        return None
    shape = [dim for dim in known.shape if isinstance(dim, int)]
    if node.op_type == "Size":
        return [np.array(prod(shape), dtype=np.int64)]
    part = shape[attribute_value(node, "start", 0) : attribute_value(node, "end", len(shape))]
    return [np.array(part, dtype=np.int64)]


def _may_be_known(known: TensorType | None) -> bool:
    """Whether a result is small enough to count as arithmetic; unknown shapes of small operands are."""
    if known is None or not known.is_known:
        return True
    shape = tuple(dim for dim in known.shape or () if isinstance(dim, int))
    return len(shape) == len(known.shape or ()) and _is_small(known.dtype, shape)


def _is_small(dtype: str, shape: tuple[int, ...]) -> bool:
    count = prod(shape)
    return (dtype in _INTEGERS and count <= MOST_ELEMENTS) or (
        dtype in _FRACTIONS and count <= _MOST_FRACTIONS
    )


def _check_bytes(draft: Draft, node: NodeProto) -> None:
    for name in node.output:
        known = draft.types.get(name)
        if known is not None and known.shape is not None:
            check_shape((dim for dim in known.shape if isinstance(dim, int)), known.dtype, name)


def _needed(draft: Draft, nodes: list[NodeProto]) -> list[NodeProto]:
    """Nodes that make what something uses, in order; weights that nothing uses go as well."""
    used = {value.name for value in draft.outputs}
    found = []
    for node in reversed(nodes):
        if used.isdisjoint(node.output):
            continue
        found.append(node)
        used.update(node.input)
        stack = list(subgraphs(node))
        while stack:
            inner = stack.pop()
            used.update(value.name for value in inner.output)
            for each in inner.node:
                used.update(each.input)
                stack += subgraphs(each)
    draft.weights = {name: weight for name, weight in draft.weights.items() if name in used}
    return found[::-1]
