"""An LSTM is differentiated in steps."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch
from onnx import helper

from autodiff.gradient_play import run
from neaptide.autodiff.errors import GradientError
from neaptide.autodiff.gradient import grad

LENGTH, SAMPLES, FEATURES, HIDDEN = 4, 2, 3, 5


def _model(**attributes) -> onnx.ModelProto:
    """The sum of all results of a bidirectional LSTM."""
    shapes = {
        "x": (LENGTH, SAMPLES, FEATURES),
        "w": (2, 4 * HIDDEN, FEATURES),
        "r": (2, 4 * HIDDEN, HIDDEN),
        "b": (2, 8 * HIDDEN),
    }
    nodes = [
        helper.make_node(
            "LSTM",
            ["x", "w", "r", "b"],
            ["y", "h", "c"],
            hidden_size=HIDDEN,
            direction="bidirectional",
            **attributes,
        ),
        *(helper.make_node("ReduceSum", [v], [f"{v}_sum"], keepdims=0) for v in "yhc"),
        helper.make_node("Sum", ["y_sum", "h_sum", "c_sum"], ["loss"]),
    ]
    inputs = [helper.make_tensor_value_info(k, 1, v) for k, v in shapes.items()]
    outputs = [helper.make_tensor_value_info("loss", 1, ())]
    graph = helper.make_graph(nodes, "lstm", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def _to_torch(rows: torch.Tensor) -> torch.Tensor:
    """Gates in the order i, f, c, o, from i, o, f, c."""
    i, o, f, c = rows.split(HIDDEN)
    return torch.cat([i, f, c, o])


def test_gradients_of_an_lstm_are_those_of_torch() -> None:
    model = _model()
    random = np.random.default_rng(0)
    feeds = {
        v.name: random.normal(size=[d.dim_value for d in v.type.tensor_type.shape.dim]).astype(np.float32)
        for v in model.graph.input
    }
    given = run(ir.to_proto(grad(ir.from_proto(model), "loss", list(feeds))), feeds)
    leaves = {k: torch.tensor(v, requires_grad=True) for k, v in feeds.items()}
    weights = []
    for d in range(2):
        wb, rb = leaves["b"][d].split(4 * HIDDEN)
        weights += [_to_torch(w) for w in (leaves["w"][d], leaves["r"][d], wb, rb)]
    start = torch.zeros(2, SAMPLES, HIDDEN)
    y, h, c = torch.lstm(leaves["x"], (start, start), weights, True, 1, 0.0, False, True, False)
    loss = y.sum() + h.sum() + c.sum()
    loss.backward()
    np.testing.assert_allclose(given["loss"], loss.item(), rtol=1e-5)
    for name, leaf in leaves.items():
        np.testing.assert_allclose(given[f"{name}_grad"], leaf.grad, rtol=1e-4, atol=1e-5, err_msg=name)


def test_an_lstm_with_a_clip_is_refused() -> None:
    with pytest.raises(GradientError, match="clip"):
        grad(ir.from_proto(_model(clip=1.0)), "loss", ["w"])
