"""Small models of ONNX for tests, and the models that come with its package."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


def tensor(name, *shape, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, None if shape == (None,) else list(shape))


def weight(name, *shape, dtype=np.float32, seed=0):
    """Random numbers, or with `dtype` of integers zeros."""
    made = (
        np.random.default_rng(seed).standard_normal(shape) if np.dtype(dtype).kind == "f" else np.zeros(shape)
    )
    return numpy_helper.from_array(np.asarray(made, dtype=dtype), name)


def numbers(name, *content, dtype=np.int64):
    return numpy_helper.from_array(np.array(content, dtype=dtype), name)


def node(text, **attributes):
    """A node as a line: `y, z = Split(x, sizes)`; an empty name is an absent operand."""
    made, _, call = text.partition(" = ")
    operator, _, operands = call.rstrip(")").partition("(")
    domain, _, operator = operator.rpartition("::")
    names = [name.strip() for name in operands.split(",")] if operands else []
    outputs = [name.strip() for name in made.split(",")]
    return helper.make_node(
        operator, names, outputs, name=f"{operator}_{outputs[0]}", domain=domain, **attributes
    )


def model(nodes, inputs, outputs, weights=(), *, opset=20, domains=(), name="toy", **graph):
    """A model of nodes, given as lines or protos."""
    made = [node(line) if isinstance(line, str) else line for line in nodes]
    body = helper.make_graph(made, name, list(inputs), list(outputs), list(weights), **graph)
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(body, opset_imports=imports, ir_version=8)


def two_branches(channels=4, size=8):
    """A convolution whose result is read by a small and by a large branch, joined at the end."""
    return model(
        [
            node("a = Conv(x, w0)", pads=[1, 1, 1, 1]),
            "r = Relu(a)",
            node("wide = Conv(r, w1)", pads=[1, 1, 1, 1]),
            "wider = Relu(wide)",
            "short = GlobalAveragePool(wider)",
            node("narrow = GlobalMaxPool(r)"),
            node("both = Concat(short, narrow)", axis=1),
            node("flat = Flatten(both)"),
            node("y = Gemm(flat, w2)", transB=1),
        ],
        [tensor("x", 1, 3, size, size)],
        [tensor("y", 1, 5)],
        [
            weight("w0", channels, 3, 3, 3),
            weight("w1", 4 * channels, channels, 3, 3, seed=1),
            weight("w2", 5, 5 * channels, seed=2),
        ],
    )
