"""Builds models of one call, runs them, and asks PyTorch for the same derivatives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from autodiff.gradient_cases import Case

Arrays = dict[str, np.ndarray]


def arguments(case: Case) -> tuple[Arrays, Arrays]:
    """Random inputs and constants by name, in float32."""
    random = np.random.default_rng(7)
    inputs, constants = {}, {}
    for index, given in enumerate(case.inputs):
        if isinstance(given, tuple):
            inputs[f"x{index}"] = random.uniform(case.low, case.high, given).astype(np.float32)
        elif given is not None:
            constants[f"x{index}"] = np.asarray(given)
    return inputs, constants


def model_of(
    case: Case, inputs: Arrays, constants: Arrays, weights: np.ndarray, kind: type = np.float32
) -> onnx.ModelProto:
    """`loss = sum(weights * y)` of a call whose first result is y."""
    element = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    held = {**constants, "weights": weights}
    held = {k: v.astype(kind) if v.dtype == np.float32 else v for k, v in held.items()}
    names = ["" if x is None else f"x{i}" for i, x in enumerate(case.inputs)]
    attributes = {**case.attributes, "to": element} if case.op == "Cast" else case.attributes
    nodes = [
        helper.make_node(case.op, names, ["y", *(f"y{i}" for i in range(1, case.outputs))], **attributes),
        helper.make_node("Mul", ["y", "weights"], ["weighted"]),
        helper.make_node("ReduceSum", ["weighted"], ["loss"], keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        "call",
        [helper.make_tensor_value_info(k, element, v.shape) for k, v in inputs.items()],
        [helper.make_tensor_value_info("loss", element, ())],
        [numpy_helper.from_array(v, k) for k, v in held.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", case.opset)], ir_version=10)


def run(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> Arrays:
    """Results by name, from ONNX Runtime."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, dict(feeds)), strict=True))


def reference(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> Arrays:
    """Results by name, from the reference evaluator."""
    return dict(
        zip(
            [o.name for o in model.graph.output],
            ReferenceEvaluator(model).run(None, dict(feeds)),
            strict=True,
        )
    )


def torch_gradients(
    case: Case, inputs: Arrays, constants: Arrays, weights: np.ndarray, directions: Arrays
) -> tuple[Arrays, Arrays]:
    """Gradients, and products of the Hessian with the directions, in float64."""
    leaves = {k: torch.tensor(v, dtype=torch.float64, requires_grad=True) for k, v in inputs.items()}
    fixed = {
        k: torch.tensor(v.astype(np.float64) if v.dtype == np.float32 else v) for k, v in constants.items()
    }
    loss = (
        case.torch(*({**leaves, **fixed}[name] for name in sorted({**leaves, **fixed})))
        * torch.tensor(weights).double()
    ).sum()
    first = torch.autograd.grad(loss, list(leaves.values()), create_graph=True)
    product = sum(
        (g * torch.tensor(v).double()).sum() for g, v in zip(first, directions.values(), strict=True)
    )
    second: Sequence[torch.Tensor | None] = [None] * len(leaves)
    if product.requires_grad:
        second = torch.autograd.grad(product, list(leaves.values()), allow_unused=True)
    zero = {k: np.zeros(v.shape) for k, v in inputs.items()}
    return (
        {k: g.detach().numpy() for k, g in zip(leaves, first, strict=True)},
        {k: zero[k] if h is None else h.numpy(force=True) for k, h in zip(leaves, second, strict=True)},
    )
