"""Weights that are made of weights are worked out when a file is written, and only those that something uses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import prod
from typing import TYPE_CHECKING, Final

import numpy as np

from neaptide.errors import UnsupportedModel
from neaptide.frontends.onnx.constants.evaluate import evaluate
from neaptide.frontends.onnx.constants.weights import element_type
from neaptide.frontends.onnx.draft import subgraphs
from neaptide.frontends.onnx.model import Array, Weight

if TYPE_CHECKING:
    from onnx import NodeProto

_MOST_READ: Final = 4096
"""Elements of a weight that may be limits, scales or axes, so that its numbers decide whether a node can be worked out."""
_PLAIN: Final = frozenset({"float32", "int64", "int32", "int8", "uint8", "bool"})
_SURE: Final = frozenset({
    "Add", "Cast", "Concat", "ConstantOfShape", "DequantizeLinear", "Div", "Flatten", "Identity", "Mul", "Neg", "Pow",
    "Range", "Reshape", "Sqrt", "Squeeze", "Sub", "Transpose", "Unsqueeze",
})  # fmt: skip
"""Operators that the reference implementation works out for every operand of a plain element type."""


class FoldedWeights:
    """Numbers of weights by name; what nodes make of them is worked out when it is asked for."""

    def __init__(
        self, given: Callable[[str], Array], nodes: Iterable[NodeProto], opsets: Mapping[str, int]
    ) -> None:
        """`nodes`: those that make weights of weights, in an order in which they can run."""
        self._given = given
        self._maker: dict[str, NodeProto] = {}
        self._made: dict[str, Array] = {}
        self._opsets = opsets
        for node in nodes:
            self.add(node)

    def add(self, node: NodeProto) -> None:
        """One more node that makes weights of weights."""
        self._maker |= {name: node for name in node.output if name}

    def array(self, name: str) -> Array:
        """The numbers of a weight. Each node runs once.

        Raises:
            UnsupportedModel: an operator cannot be worked out.
        """
        if name in self._maker:
            self._make(name)
            return self._made[name]
        return self._given(name)

    def _make(self, name: str) -> None:
        stack = [name]
        while stack:
            node = self._maker[stack[-1]]
            missing = [n for n in node.input if n in self._maker and n not in self._made]
            if missing and stack[-1] not in self._made:
                stack += missing
                continue
            asked = stack.pop()
            if asked not in self._made:
                operands = {n: self._made[n] if n in self._made else self._given(n) for n in node.input if n}
                results = evaluate(node, operands, self._opsets)
                self._made.update(zip((n for n in node.output if n), results, strict=True))


class Foldable:
    """Says which nodes can be worked out, by working out those that are not sure; large weights are taken as zeros."""

    def __init__(self, weights: Mapping[str, Weight], opsets: Mapping[str, int]) -> None:
        self._weights = weights
        self._trial = FoldedWeights(self._stand_in, (), opsets)

    def add(self, node: NodeProto, dtypes: Iterable[str]) -> bool:
        """Whether a node that makes weights of weights can be worked out; `dtypes` are those of its operands."""
        if any(subgraphs(node)):
            return False  # a loop may take any time
        self._trial.add(node)
        if node.op_type in _SURE and _PLAIN.issuperset(dtypes):
            return True
        try:
            self._trial.array(next(name for name in node.output if name))
        except UnsupportedModel:
            return False
        return True

    def _stand_in(self, name: str) -> Array:
        from onnx import helper

        weight = self._weights[name]
        if prod(weight.shape) <= _MOST_READ:
            return weight.array()
        return np.zeros(weight.shape, helper.tensor_dtype_to_np_dtype(element_type(weight)))
