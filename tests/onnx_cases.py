"""Small models of ONNX for tests: written as text, with random weights, and run by ONNX Runtime as they are."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from neaptide.frontends.onnx.model import OnnxModel
from neaptide.frontends.onnx.reader import read_model
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Arg, Node

Arrays = Mapping[str, np.ndarray[Any, Any]]


def model_of(text: str, opset: int = 17) -> onnx.ModelProto:
    """A model from the text of its graph; inputs whose names begin with `w` are weights: random, and positive in `wv...`."""
    header = f'<ir_version: 8, opset_import: ["" : {opset}, "com.microsoft" : 1]>'
    made = onnx.parser.parse_model(f"{header}\n{text}")
    rng = np.random.default_rng(7)
    for value in [value for value in made.graph.input if value.name.startswith("w")]:
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        array = numbers(rng, shape, helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))
        if value.name.startswith("wv"):
            array = np.abs(array) + np.asarray(0.5, array.dtype)
        made.graph.initializer.append(numpy_helper.from_array(array, value.name))
        made.graph.input.remove(value)
    return made


def numbers(rng: np.random.Generator, shape: list[int], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Random numbers; whole ones are small."""
    if dtype.kind in "iu":
        return rng.integers(0, 3, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def graph_of(text: str, opset: int = 17) -> OnnxModel:
    """The graph of such a model."""
    return read_model(model_of(text, opset))


def outputs_of(model: OnnxModel, graph: Graph, seed: int = 0) -> list[np.ndarray[Any, Any]]:
    """What a graph makes of random inputs, as a valid model with the weights of another, optimizations off."""
    rng, feeds, weights, given = np.random.default_rng(seed), {}, [], []
    for number in graph.inputs:
        value, name = graph.values[number], f"v{number}"
        shape = [extent.constant_value() for extent in value.shape]
        if value.name in model.weights:
            weights.append(numpy_helper.from_array(np.array(model.weights[value.name].array()), name))
        else:
            given.append(_declared(graph, number))
            feeds[name] = numbers(rng, shape, np.dtype(value.dtype))
    nodes = [_written(node) for node in graph.nodes]
    made = helper.make_graph(
        nodes, "g", given, [_declared(graph, number) for number in graph.outputs], weights
    )
    versions = [helper.make_opsetid(domain, version) for domain, version in model.opsets.items()]
    proto = helper.make_model(made, opset_imports=versions, ir_version=8)
    onnx.checker.check_model(proto, full_check=True)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    found: list[np.ndarray[Any, Any]] = session.run(None, feeds)
    return found


def _written(node: Node) -> onnx.NodeProto:
    domain, operator, _ = node.op.split(".")
    args = ["" if arg is None else f"v{node.inputs[arg.slot]}" for arg in node.args]
    outputs = [f"v{number}" for number in node.outputs]
    kwargs = {name: _attribute(arg) for name, arg in node.kwargs}
    space = "" if domain == "onnx" else domain.replace("_", ".")
    return helper.make_node(operator, args, outputs, domain=space, **kwargs)


def _attribute(arg: Arg) -> Any:
    return list(arg) if isinstance(arg, tuple) else arg


def _declared(graph: Graph, number: int) -> onnx.ValueInfoProto:
    value = graph.values[number]
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(value.dtype))
    return helper.make_tensor_value_info(f"v{number}", kind, [e.constant_value() for e in value.shape])


def largest_error(before: list[np.ndarray[Any, Any]], after: list[np.ndarray[Any, Any]]) -> float:
    """The largest difference of two results, by the largest number of the first where that is above 1."""
    assert [a.shape for a in before] == [b.shape for b in after]
    return max(
        float(
            np.max(np.abs(a.astype(np.float64) - b), initial=0.0)
            / max(1.0, float(np.max(np.abs(a), initial=0.0)))
        )
        for a, b in zip(before, after, strict=True)
    )
