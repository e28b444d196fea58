"""Small models of ONNX for tests: written as text, with random weights, and run by ONNX Runtime as they are."""

from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from neaptide.frontends.onnx.model import OnnxModel
from neaptide.frontends.onnx.reader import read_model
from neaptide.ir.graph import Graph
from neaptide.lower.onnx.writer import write_model


def model_of(text: str, opset: int = 17) -> onnx.ModelProto:
    """A model from the text of its graph; inputs whose names begin with `w` are weights: random, and positive in `wv...`."""
    header = f'<ir_version: 8, opset_import: ["" : {opset}]>'
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
    """What a graph makes of random inputs: written to a model, and run with optimizations off."""
    proto, rng = write_model(model, graph), np.random.default_rng(seed)
    feeds = {}
    for value in proto.graph.input:
        kind = value.type.tensor_type
        shape = [dim.dim_value for dim in kind.shape.dim]
        feeds[value.name] = numbers(rng, shape, helper.tensor_dtype_to_np_dtype(kind.elem_type))
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    found: list[np.ndarray[Any, Any]] = session.run(None, feeds)
    return found


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
