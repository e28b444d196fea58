"""Products of the Hessian with a vector: the gradient of the gradient's inner product with it."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from neaptide.autodiff.emitter import Emitter
from neaptide.autodiff.gradient import grad
from neaptide.autodiff.prepare import find_value


def hessian_vector_product(model: ir.Model, loss: str, wrt: Sequence[str]) -> ir.Model:
    """A copy of a model that multiplies the Hessian of one of its values with a vector.

    For each `NAME` in `wrt`, the new input `NAME_direction` takes this value's part of the vector, and the new output
    `NAME_hvp` is this value's part of the product. The gradient is an output, too.

    Args:
        model: as for `grad`.
        loss: name of a value with one element.
        wrt: names of values.

    Raises:
        UsageError: as for `grad`.
        GradientError: as for `grad`.
    """
    once = grad(model, loss, wrt)
    graph = once.graph
    emitter = Emitter(graph)
    total = None
    for name, value in zip(wrt, graph.outputs[-len(wrt) :], strict=True):
        operand = find_value(once, name)
        direction = ir.Value(name=f"{name}_direction", type=operand.type, shape=operand.shape)
        graph.inputs.append(direction)
        part = emitter.tensor(value) * emitter.tensor(direction)
        product = part.sum(range(len(operand.shape or ())), keep=False)
        total = product if total is None else total + product
    assert total is not None
    assert total.value.name is not None
    total.value.type, total.value.shape = ir.TensorType(total.dtype), ir.Shape(())
    twice = grad(once, total.value.name, wrt)
    for name, value in zip(wrt, twice.graph.outputs[-len(wrt) :], strict=True):
        value.name = f"{name}_hvp"
    return twice
