"""In a child: model files of one operator, from calls as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

_STANDARD_OPSET: Final = 17
"""Of the nodes around an operator of another domain."""
_FIRST_OPSET: Final = 7
"""Operators whose version is older have not changed up to it."""
_LONG_NAMES: Final = {"float32": "FLOAT", "float64": "DOUBLE"}

Call = Mapping[str, Any]
Feeds = dict[str, NDArray[Any]]


def element_type(dtype: str) -> int:
    return int(TensorProto.DataType.Value(_LONG_NAMES.get(dtype, dtype.upper())))


def lone_model(call: Call) -> tuple[bytes, Feeds]:
    """The operator between inputs and outputs, and what to feed."""
    made = _Making(call)
    outputs = [f"y{i}" if tensor else "" for i, tensor in enumerate(call["results"])]
    made.operator(outputs)
    results = [made.info(name, t) for name, t in zip(outputs, call["results"], strict=True) if t]
    return made.model(results), made.feeds


def overwriting_model(call: Call, place: int) -> tuple[bytes, Feeds]:
    """The operator with an operand that a node before it has made and nobody else needs, and a result that is no output."""
    made = _Making(call)
    operand = call["operands"][place]
    made.nodes.append(helper.make_node("Concat", [made.inputs[place]], ["dying"], axis=0))
    made.inputs = [*made.inputs[:place], "dying", *made.inputs[place + 1 :]]
    outputs = [f"y{i}" if tensor else "" for i, tensor in enumerate(call["results"])]
    made.operator(outputs)
    made.nodes.append(helper.make_node("Shape", [outputs[0]], ["extents"]))
    rank = len(call["results"][0]["shape"])
    made.known += [made.info("dying", operand), made.info(outputs[0], call["results"][0])]
    return made.model([helper.make_tensor_value_info("extents", TensorProto.INT64, [rank])]), made.feeds


def chain_model(kind: str, length: int) -> tuple[bytes, Feeds]:
    """Operations in a row, two tensors at a time: `Add`, each of a weight of its own, or one that overwrites its operand."""
    shape = (1, 16)
    names = ["x", *(f"y{i}" for i in range(length))]
    held = [f"w{i}" for i in range(length)] if kind == "Add" else []
    nodes = [helper.make_node(kind, [names[i], *held[i : i + 1]], [names[i + 1]]) for i in range(length)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in (names[0], names[-1])]
    ones = np.ones(shape, np.float32)
    weights = [numpy_helper.from_array(ones, name) for name in held]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], weights)
    opsets = [helper.make_opsetid("", _STANDARD_OPSET)]
    version = helper.find_min_ir_version_for(opsets)
    model = helper.make_model(graph, opset_imports=opsets, ir_version=version)
    return bytes(model.SerializeToString()), {"x": ones}


class _Making:
    def __init__(self, call: Call) -> None:
        self.call = call
        self.feeds: Feeds = {}
        self.nodes: list[onnx.NodeProto] = []
        self.known: list[onnx.ValueInfoProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.declared: list[onnx.ValueInfoProto] = []
        self.inputs = [self._operand(f"x{i}", t) if t else "" for i, t in enumerate(call["operands"])]

    def operator(self, outputs: Sequence[str]) -> None:
        node = helper.make_node(self.call["kind"], self.inputs, outputs, domain=self.call["domain"])
        for name, value in self.call["attributes"]:
            # An empty list says nothing of its type; those of the standard are of integers.
            kind = onnx.AttributeProto.INTS if value == [] else None
            node.attribute.append(helper.make_attribute(name, value, attr_type=kind))
        self.nodes.append(node)

    def info(self, name: str, tensor: Mapping[str, Any]) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, element_type(tensor["dtype"]), tensor["shape"])

    def model(self, outputs: Sequence[onnx.ValueInfoProto]) -> bytes:
        call = self.call
        if call["domain"]:
            versions = {call["domain"]: call["version"], "": _STANDARD_OPSET}
        else:
            versions = {"": max(_FIRST_OPSET, call["version"])}
        opsets = [helper.make_opsetid(domain, version) for domain, version in versions.items()]
        graph = helper.make_graph(
            self.nodes, "one", self.declared, outputs, self.weights, value_info=self.known
        )
        version = helper.find_min_ir_version_for(opsets, ignore_unknown=True)
        made = helper.make_model(graph, opset_imports=opsets, ir_version=version)
        return bytes(made.SerializeToString())

    def _operand(self, name: str, tensor: Mapping[str, Any]) -> str:
        numbers = _numbers(tensor)
        if tensor["weight"]:
            self.weights.append(numpy_helper.from_array(numbers, name))
        else:
            self.declared.append(self.info(name, tensor))
            self.feeds[name] = numbers
        return name


def _numbers(tensor: Mapping[str, Any]) -> NDArray[Any]:
    """The numbers given, else ones; zeros for integers, which are right for indices and for zero points."""
    dtype = helper.tensor_dtype_to_np_dtype(element_type(tensor["dtype"]))
    shape = tuple(tensor["shape"])
    if tensor["numbers"] is not None:
        return np.asarray(tensor["numbers"], dtype=dtype).reshape(shape)
    is_integer = np.issubdtype(dtype, np.integer) or dtype == np.bool_
    return np.full(shape, 0 if is_integer else 1, dtype)
