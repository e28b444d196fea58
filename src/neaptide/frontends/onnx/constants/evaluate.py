"""The numbers that a node makes of numbers, by the reference implementation of onnx."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import numpy as np

from neaptide.errors import UnsupportedModel
from neaptide.frontends.onnx.draft import attribute_value, called
from neaptide.frontends.onnx.file import parser_words
from neaptide.frontends.onnx.model import Array

if TYPE_CHECKING:
    from onnx import NodeProto

_IMPLEMENTED: Final[Mapping[str, int]] = MappingProxyType(
    {"BatchNormalization": 15, "DequantizeLinear": 19, "QuantizeLinear": 19}
)
"""By operator the opset since which the reference implementation has it, and has it right in inference; what an older opset
says means the same there."""

_WRONG: Final = frozenset({"LRN"})
"""Of which the reference implementation makes other numbers than the standard says."""
_OF_ROWS: Final = frozenset({"Softmax", "LogSoftmax", "Hardmax"})
"""Before opset 13 their axis and all axes after it are one; the reference implementation knows one axis alone."""
_ONE_AXIS: Final = 13


def evaluate(node: NodeProto, arrays: Mapping[str, Array], opsets: Mapping[str, int]) -> list[Array]:
    """What a node of the standard domain makes of its inputs, by name; in the order of its outputs.

    Raises:
        UnsupportedModel: the reference implementation does not know the operator, or fails.
    """
    from onnx import TensorProto, helper
    from onnx.reference import ReferenceEvaluator

    if node.op_type in _WRONG:
        raise UnsupportedModel(
            f"{called(node)} cannot be worked out from its weights",
            why="the reference implementation of onnx computes it wrong",
            next_step="fold the constants of the model with another tool first",
        )
    if node.op_type in _OF_ROWS and opsets.get("", 1) < _ONE_AXIS:
        return _of_rows(node, arrays, opsets)
    # The graph states no types: the evaluator asks for none.
    inputs = [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in arrays]
    outputs = [
        helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in node.output if name
    ]
    graph = helper.make_graph([node], "one", inputs, outputs)
    since = _IMPLEMENTED.get(node.op_type, 0)
    imports = [helper.make_opsetid(domain, max(version, since)) for domain, version in opsets.items()]
    model = helper.make_model(graph, opset_imports=imports)
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made: Sequence[Array] = ReferenceEvaluator(model).run(None, dict(arrays))
    except Exception as error:
        raise UnsupportedModel(
            f"{called(node)} cannot be worked out from its weights",
            why=f"the reference implementation of onnx says: {type(error).__name__}: {parser_words(error)}",
            next_step="fold the constants of the model with another tool first",
        ) from error
    return [np.asarray(array) for array in made]


def _of_rows(node: NodeProto, arrays: Mapping[str, Array], opsets: Mapping[str, int]) -> list[Array]:
    """What a node makes that sees its operand as a matrix, whose rows end at its axis."""
    from onnx import helper

    (given,) = arrays.values()
    axis = int(attribute_value(node, "axis", 1)) % max(given.ndim, 1)
    rows = given.reshape(prod(given.shape[:axis]), -1) if given.size else given
    one = helper.make_node(node.op_type, node.input, node.output, axis=-1)
    (made,) = evaluate(one, dict.fromkeys(arrays, rows), {**opsets, "": _ONE_AXIS})
    return [made.reshape(given.shape)]
