"""Steps of training as ONNX models: a network, its loss, gradients by extension of the graph, and updates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import neaptide.onnx
from neaptide.analysis.folded import folded_storages
from neaptide.ir.graph import Graph
from neaptide.ir.values import Kind
from neaptide.ops.onnx import registry
from neaptide.schedule.order.from_graph import order_problem
from neaptide.schedule.order.of_model import row_workspace
from neaptide.schedule.order.problem import OrderProblem
from neaptide_corpus.onnx_network import OnnxNetwork

if TYPE_CHECKING:
    from onnx import ModelProto

_INT64: Final = 7  # `TensorProto.INT64`
_FLOAT: Final = 1


def lenet() -> ModelProto:
    """Convolutions of 8 and 16 channels, each with a pool, and 10 classes, on one image of 28 x 28: 9,098 weights.

    The ReLU comes after the pool, as in PyTorch's example of MNIST; before it, it is the same function.
    """
    net = OnnxNetwork("lenet", seed=0)
    x = net.input(1, 28, 28)
    for channels in (8, 16):
        x = net.relu(net.max_pool(net.convolution(x, channels, 3, bias=True), 2))
    return with_loss(net.finish(net.dense(net.flatten(x), 10)))


def two_convolutions() -> ModelProto:
    """Two convolutions of 32 channels, each with a pool over 4, and two dense layers, on one image of 125 x 90."""
    net = OnnxNetwork("two_convolutions", seed=0)
    x = net.input(1, 125, 90)
    for _ in range(2):
        x = net.relu(net.max_pool(net.convolution(x, 32, 3, bias=True), 4))
    return with_loss(net.finish(net.dense(net.relu(net.dense(net.flatten(x), 64)), 3)))


def with_loss(model: ModelProto) -> ModelProto:
    """A classifier that gives the cross entropy of its scores with the input `label`, and nothing else."""
    from onnx import ModelProto, helper

    made = ModelProto.FromString(model.SerializeToString())
    graph = made.graph
    scores = graph.output[0]
    batch = scores.type.tensor_type.shape.dim[0].dim_value
    graph.input.append(helper.make_tensor_value_info("label", _INT64, (batch,)))
    graph.node.append(
        helper.make_node("SoftmaxCrossEntropyLoss", [scores.name, "label"], ["loss"], name="loss")
    )
    graph.output[0].CopyFrom(helper.make_tensor_value_info("loss", _FLOAT, ()))
    return made


def parameters(model: ModelProto) -> list[str]:
    """Names of the weights of a network, all of them floating-point initializers."""
    return [tensor.name for tensor in model.graph.initializer if tensor.data_type == _FLOAT]


def training_step(model: ModelProto, rate: float) -> ModelProto:
    """A model that also gives each weight after one step of gradient descent on its output `loss`."""
    return neaptide.onnx.grad(model, loss="loss", wrt=parameters(model), sgd=rate)


def problem_in_place(graph: Graph) -> OrderProblem:
    """The ordering problem of a step in memory of its own: weights count, and an update may overwrite its weight.

    The problem of a model in a runtime counts no weights, and an updated weight lies beside the one that the caller holds.
    """
    inputs = {graph.values[value].storage for value in graph.inputs}
    freed = {s for s in inputs if s is not None and graph.storages[s].kind in {Kind.INPUT, Kind.BUFFER}}
    return order_problem(
        graph,
        storage_bytes=folded_storages(graph),
        on_operands=registry(),
        freed=freed,
        workspace=row_workspace(graph, registry()),
    )
