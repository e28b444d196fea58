"""The bars of the C target: models, the passes that bring them low, and what may be needed at most."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import onnx

import neaptide.onnx
from neaptide.frontends.onnx.model import OnnxModel
from neaptide.frontends.onnx.reader import read_model
from neaptide.ir.graph import Graph
from neaptide.lower.c.of_model import write_c
from neaptide.lower.c.write import CProgram, CSettings
from neaptide.lower.onnx.writer import write_model
from neaptide.ops.onnx import registry
from neaptide.outcome import Limits
from neaptide.schedule.order.of_model import model_problem
from neaptide.schedule.order.portfolio import best_order
from neaptide.transform.node_rule import operand_at
from neaptide.transform.passes import PASSES, fission
from neaptide.transform.rewrite import Rewrite
from onnx_files_of_corpus import KIB, file_of

_SECONDS: Final = 20  # of the search for an order


@dataclass(frozen=True, slots=True)
class Bar:
    """A model, what writes it under some settings, and what is asked of it.

    Attributes:
        work: multiply-adds of the planned graph over those of the file.
    """

    model: onnx.ModelProto
    write: Callable[[CSettings], CProgram]
    most_bytes: int
    work: float = 1.0
    most_work: float = 1.0


def multiply_adds(graph: Graph) -> int:
    """Of convolutions, those in the padding included."""
    total = 0
    for node in graph.nodes:
        operator = node.op.split(".")[1]
        if operator in {"Conv", "QLinearConv"}:
            filters = operand_at(node, 1 if operator == "Conv" else 3)
            assert filters is not None
            weight, count = graph.values[filters], 1
            for extent in (*graph.values[node.outputs[0]].shape, *weight.shape[1:]):
                count *= extent.constant_value()
            total += count
    return total


def applied(graph: Graph, name: str, *, where: Callable[[Graph, Rewrite], bool] = lambda *_: True) -> Graph:
    """The graph after a pass, once in every place that is wanted, until there is none."""
    rule, rows = PASSES[name], registry()
    while places := [place for place in rule.find(graph, rows) if where(graph, place)]:
        graph = rule.apply(graph, rows, places[0]).graph
    return graph


def windows(graph: Graph, parts: int, nodes: Sequence[int]) -> Graph:
    """The graph with some nodes in windows of the rows of what the first of them reads."""
    rule = fission.window_fission(parts)
    place = Rewrite(rule=rule.name, nodes=tuple(nodes), settings=(("dim", 2), ("value", 0)), keeps_bits=False)
    return rule.apply(graph, registry(), place).graph


def in_best_order(source: OnnxModel, graph: Graph) -> Callable[[CSettings], CProgram]:
    """What writes a graph in the best order that is found."""
    problem = model_problem(graph, registry())
    order = best_order(problem, Limits(time_s=_SECONDS)).require().order
    return lambda settings: write_c(source, "m", settings, graph=graph, order=order)


def _whole(inputs: int) -> Callable[[Graph, Rewrite], bool]:
    """Convolutions with so many input channels that still have all of their 32 output channels."""

    def wanted(graph: Graph, place: Rewrite) -> bool:
        first = graph.nodes[place.nodes[0]]
        channels = [graph.values[v].shape[1].constant_value() for v in (first.inputs[0], first.outputs[0])]
        return first.op.startswith("onnx.Conv.") and channels == [inputs, 32]

    return wanted


def channels_in_parts() -> Bar:
    """Two convolutions: every output channel of the first by itself, without work that is done twice."""
    return _two_convolutions(217, 1.0, lambda graph: graph)


def windows_and_channels() -> Bar:
    """Two convolutions: rows in two parts through both, channels in parts inside."""
    return _two_convolutions(128, 1.05, lambda graph: windows(graph, 2, range(6)))


def _two_convolutions(most: int, most_work: float, prepare: Callable[[Graph], Graph]) -> Bar:
    model = onnx.load(file_of("two_convolutions"))
    source = read_model(model)
    graph = applied(prepare(source.graph), "channel_fission_all", where=_whole(1))
    graph = applied(graph, "channel_fission_8", where=_whole(32))
    work = multiply_adds(graph) / multiply_adds(source.graph)
    return Bar(model, in_best_order(source, graph), most * KIB, work, most_work)


_LENET: Final = """<ir_version: 9, opset_import: ["" : 18]>
lenet (float[1,1,28,28] x, float[1,10] t, float[8,1,3,3] w0, float[8] w1, float[16,8,3,3] w2, float[16] w3,
       float[784,10] w4, float[10] w5) => (float loss)
{ a = Conv<pads=[1,1,1,1]>(x, w0, w1) b = Relu(a) c = MaxPool<kernel_shape=[2,2], strides=[2,2]>(b)
  d = Conv<pads=[1,1,1,1]>(c, w2, w3) e = Relu(d) f = MaxPool<kernel_shape=[2,2], strides=[2,2]>(e)
  g = Flatten(f) h = Gemm(g, w4, w5) i = LogSoftmax<axis=1>(h) j = Mul(i, t) k = ReduceSum<keepdims=0>(j)
  loss = Neg(k) }"""


def training() -> Bar:
    """A step of SGD for a network like LeNet, its weights included; pools are moved before activations first."""
    model = onnx.parser.parse_model(_LENET)
    rng = np.random.default_rng(0)
    for value in [value for value in model.graph.input if value.name.startswith("w")]:
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        array = (0.2 * rng.standard_normal(shape)).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, value.name))
        model.graph.input.remove(value)
    source = read_model(model)
    swapped = write_model(source, applied(source.graph, "relu_pool_swap"))
    step = neaptide.onnx.grad(swapped, loss="loss", wrt=[f"w{k}" for k in range(6)], sgd=0.05)
    read = read_model(step)
    order = best_order(model_problem(read.graph, registry()), Limits(time_s=_SECONDS)).require().order
    updates = {f"w{k}_new": f"w{k}" for k in range(6)}
    del step.graph.output[1:]  # what replaces a weight is no result of the program
    return Bar(step, lambda s: write_c(read, "m", s, order=order, updates=updates), 80 * KIB)


_BLOCKS: Final = (
    *(
        (1, 16, 1),
        (6, 24, 2),
        (6, 24, 1),
        (6, 32, 2),
        (6, 32, 1),
        (6, 32, 1),
        (6, 64, 2),
        (6, 64, 1),
        (6, 64, 1),
    ),
    *((6, 64, 1), (6, 96, 1), (6, 96, 1), (6, 96, 1), (6, 160, 2), (6, 160, 1), (6, 160, 1), (6, 320, 1)),
)
"""Expansion, output channels and stride of the blocks of MobileNetV2 (Sandler et al., CVPR 2018)."""


class _Integers:
    """MobileNetV2 of width 1 for images of 224 by 224, in the integer operators of the runtime, with random weights."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.draw = np.random.default_rng(0)
        self.value, self.zero, self.channels = "x", "low", 3
        self.add("one", np.float32(1))
        self.add("low", np.int8(-128))
        self.add("zero", np.int8(0))

    def add(self, name: str, array: Any) -> str:
        self.weights.append(onnx.numpy_helper.from_array(np.asarray(array), name))
        return name

    def conv(
        self, out: int, kernel: int, stride: int, *, depthwise: bool = False, active: bool = True
    ) -> None:
        number, fan_in = len(self.nodes), 1 if depthwise else self.channels
        weight = self.draw.integers(-127, 128, (out, fan_in, kernel, kernel)).astype(np.int8)
        scale = np.float32(90 * np.sqrt(fan_in * kernel * kernel))
        names = [self.add(f"w{number}", weight), self.add(f"s{number}", scale)]
        zero = "low" if active else "zero"
        operands = [self.value, "one", self.zero, names[0], "one", "zero", names[1], zero]
        self.value, self.zero, self.channels = f"v{number}", zero, out
        pads = [(kernel - 1) // 2] * 4
        kwargs = {"group": out if depthwise else 1, "pads": pads, "strides": [stride, stride]}
        self.nodes.append(onnx.helper.make_node("QLinearConv", operands, [self.value], **kwargs))

    def block(self, expansion: int, out: int, stride: int) -> None:
        first, inputs = self.value, self.channels
        hidden = self.channels * expansion
        if expansion > 1:
            self.conv(hidden, 1, 1)
        self.conv(hidden, 3, stride, depthwise=True)
        self.conv(out, 1, 1, active=False)
        if stride == 1 and inputs == out:
            scales = [first, "one", "zero", self.value, "one", "zero", "one", "zero"]
            self.value = f"v{len(self.nodes)}"
            self.nodes.append(
                onnx.helper.make_node("QLinearAdd", scales, [self.value], domain="com.microsoft")
            )

    def model(self) -> onnx.ModelProto:
        self.conv(32, 3, 2)
        for expansion, out, stride in _BLOCKS:
            self.block(expansion, out, stride)
        self.conv(1280, 1, 1)
        imports = [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid("com.microsoft", 1)]
        kind = onnx.TensorProto.INT8
        graph = onnx.helper.make_graph(
            self.nodes,
            "mobilenet_v2",
            [onnx.helper.make_tensor_value_info("x", kind, [1, 3, 224, 224])],
            [onnx.helper.make_tensor_value_info(self.value, kind, [1, 1280, 7, 7])],
            self.weights,
            value_info=[
                onnx.helper.make_tensor_value_info(node.output[0], kind, shape)
                for node, shape in zip(self.nodes, self.shapes(), strict=True)
            ][:-1],
        )
        return onnx.helper.make_model(graph, opset_imports=imports, ir_version=9)

    def shapes(self) -> Iterator[list[int]]:
        sizes = {tensor.name: list(tensor.dims) for tensor in self.weights}
        rows, shape = {"x": 224}, [1, 3, 224, 224]
        for node in self.nodes:
            if node.op_type == "QLinearConv":
                stride = next(a for a in node.attribute if a.name == "strides").ints[0]
                side = rows[node.input[0]] // stride
                shape = [1, sizes[node.input[3]][0], side, side]
            rows[node.output[0]] = shape[2]
            yield shape


def mobilenet() -> Bar:
    """MobileNetV2 of width 1 at 224 by 224 in integers, its input included: rows of its widest blocks in windows."""
    model = _Integers().model()
    source = read_model(model)
    graph = source.graph
    # Behind a window the others keep their places, so the last comes first.
    for parts, first, last in ((4, 10, 12), (8, 6, 9), (28, 0, 5)):
        graph = windows(graph, parts, range(first, last + 1))
    work = multiply_adds(graph) / multiply_adds(source.graph)
    return Bar(model, in_best_order(source, graph), 320 * KIB, work, 1.12)


BARS: Final[Mapping[str, Callable[[], Bar]]] = MappingProxyType(
    {
        "channels_in_parts": channels_in_parts,
        "windows_and_channels": windows_and_channels,
        "training": training,
        "mobilenet": mobilenet,
    }
)
