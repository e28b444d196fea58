"""Operands that are lists of numbers, as the opset of a model has them: since some version operands, before attributes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

import numpy as np

from neaptide.errors import LoweringError
from neaptide.frontends.onnx.model import Array
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Arg, Node, Ref
from neaptide.ops.onnx.table import operator_of

_ATTRIBUTES: Final[Mapping[str, tuple[int, tuple[str, ...]]]] = MappingProxyType(
    {"Slice": (10, ("starts", "ends", "axes")), "Split": (13, ("split",)), "Squeeze": (13, ("axes",))}
)
"""By operator, the opset since which its lists are operands, and what they are called as attributes, in the same order."""


def listed_numbers(node: Node) -> Array | None:
    """The list of numbers that a node is, as passes insert it; None for any other node."""
    numbers = node.kwarg("value_ints") if operator_of(node.op) == "Constant" else None
    return np.array(numbers, np.int64) if isinstance(numbers, tuple) else None


def at_opset(graph: Graph, node: Node, opset: int) -> Node:
    """A node as an opset has it. What has the form of the opset already is the same object.

    Raises:
        LoweringError: a list of numbers is not known before the model runs, and the opset wants it as an attribute.
    """
    since, names = _ATTRIBUTES.get(operator_of(node.op) or "", (0, ()))
    if opset >= since or len(node.args) < 2:
        return node
    lists: dict[str, Arg] = dict(node.kwargs)
    for name, arg in zip(names, node.args[1:], strict=False):
        producer = graph.producer(node.inputs[arg.slot]) if isinstance(arg, Ref) else None
        numbers = None if producer is None else listed_numbers(graph.nodes[producer])
        if numbers is None:
            raise LoweringError(f"opset {opset} has no {node.op} whose {name} are an operand")
        lists[name] = tuple(int(number) for number in numbers)
    return replace(node, args=node.args[:1], kwargs=tuple(sorted(lists.items())))
