"""Weights that are made of weights are worked out when a file is written, and only those that something uses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from neaptide.frontends.onnx.evaluate import evaluate
from neaptide.frontends.onnx.model import Array

if TYPE_CHECKING:
    from onnx import NodeProto


class FoldedWeights:
    """Numbers of weights by name in the file; what nodes make of them is worked out when it is asked for."""

    def __init__(
        self, given: Mapping[str, Array], nodes: Iterable[NodeProto], opsets: Mapping[str, int]
    ) -> None:
        """`nodes`: those that make weights of weights, in an order in which they can run."""
        self._given = given
        self._maker = {name: node for node in nodes for name in node.output if name}
        self._made: dict[str, Array] = {}
        self._opsets = opsets

    def array(self, name: str) -> Array:
        """The numbers of a weight. Each node runs once.

        Raises:
            UnsupportedModel: an operator cannot be worked out.
        """
        if name in self._maker:
            self._make(name)
            return self._made[name]
        return self._given[name]

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
                operands = {n: self._made[n] if n in self._made else self._given[n] for n in node.input if n}
                results = evaluate(node, operands, self._opsets)
                self._made.update(zip((n for n in node.output if n), results, strict=True))
