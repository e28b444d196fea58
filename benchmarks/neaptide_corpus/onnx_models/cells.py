"""Irregular networks as model files: searched cells (DARTS, NASNet) and randomly wired ones, batch norms folded.

Each is built once as an ordering problem and, beside it, as ONNX nodes; so the memory of the file is known from code
that reads no file.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from neaptide_corpus.conv_forms import ConvForm, FeatureMap
from neaptide_corpus.nas_networks import GENOTYPES, Genotype, MacroArchitecture, stack_cells
from neaptide_corpus.order_forms import OrderForm
from neaptide_corpus.rand_wire import Edge, watts_strogatz

OPSET: Final = 17
_CLASSES: Final = 10


class OnnxForm(ConvForm):
    """A convolutional network in the making that notes an ONNX node for each operation of its ordering problem."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self._random = np.random.default_rng(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []
        self._input: FeatureMap | None = None

    def image(self, channels: int, side: int) -> FeatureMap:
        self._input = super().image(channels, side)
        return self._input

    def model(self, output: FeatureMap, name: str) -> onnx.ModelProto:
        """The file of the network that ends in `output`."""
        assert self._input is not None
        shape = (1, *self._input.shape)
        graph = helper.make_graph(
            self._nodes,
            name,
            [helper.make_tensor_value_info(self._input.storage, TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info(output.storage, TensorProto.FLOAT, (1, output.channels))],
            self._weights,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)

    def conv(
        self,
        x: FeatureMap,
        channels: int,
        *,
        kernel: tuple[int, int] = (1, 1),
        stride: int = 1,
        kind: str = "conv",
        norm: bool = True,
        padding: bool = True,
    ) -> FeatureMap:
        out = super().conv(x, channels, kernel=kernel, stride=stride, kind=kind, norm=norm, padding=padding)
        groups = x.channels if kind == "depthwise" else 1
        shape = (channels, x.channels // groups, *kernel)
        operands: list[FeatureMap | str] = [x, self._weight(shape), self._weight((channels,))]
        window = self._window(x, kernel, stride, padding=padding)
        return self._node("Conv", operands, out, group=groups, **window)

    def pool(
        self, x: FeatureMap, kind: str, *, kernel: int = 3, stride: int = 1, padding: bool = True
    ) -> FeatureMap:
        out = super().pool(x, kind, kernel=kernel, stride=stride, padding=padding)
        window = self._window(x, (kernel, kernel), stride, padding=padding)
        return self._node("MaxPool" if kind == "max" else "AveragePool", [x], out, **window)

    def relu(self, x: FeatureMap) -> FeatureMap:
        return self._node("Relu", [x], super().relu(x))

    def add(self, x: FeatureMap, y: FeatureMap) -> FeatureMap:
        return self._node("Add", [x, y], super().add(x, y))

    def concat(self, parts: Sequence[FeatureMap]) -> FeatureMap:
        return self._node("Concat", list(parts), super().concat(parts), axis=1)

    def factorized_reduction(
        self,
        x: FeatureMap,
        channels: int,
        *,
        one_shift: bool = False,  # noqa: ARG002 - of the base class
    ) -> FeatureMap:
        """Half the side by two strided convolutions side by side, as DARTS does it."""
        x = self.relu(x)
        return self.concat([self.conv(x, channels // 2, stride=2) for _ in range(2)])

    def logits(
        self,
        x: FeatureMap,
        classes: int,
        *,
        relu: bool = True,
        bias: bool = True,  # noqa: ARG002 - of the base class
    ) -> FeatureMap:
        """Global average pooling and a dense layer, whose bias is its own."""
        source = self.relu(x) if relu else x
        x = self._node("GlobalAveragePool", [source], self.result("mean", [source], (x.channels, 1, 1)))
        flat = f"{x.storage}_flat"
        self._nodes.append(helper.make_node("Flatten", [x.storage], [flat], axis=1))
        out = self.dense(x, classes, bias=False)
        names = [flat, self._weight((x.channels, classes)), self._weight((classes,))]
        self._nodes.append(helper.make_node("Gemm", names, [out.storage]))
        return out

    def _node(
        self, kind: str, operands: Sequence[FeatureMap | str], out: FeatureMap, **attributes: Any
    ) -> FeatureMap:
        names = [x if isinstance(x, str) else x.storage for x in operands]
        name = f"{kind}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, names, [out.storage], name=name, **attributes))
        return out

    def _weight(self, shape: tuple[int, ...]) -> str:
        scale = (2 / max(1, int(np.prod(shape[1:])))) ** 0.5
        values = (self._random.standard_normal(shape) * scale).astype(np.float32)
        name = f"w{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(values, name))
        return name

    def _window(
        self, x: FeatureMap, kernel: tuple[int, int], stride: int, *, padding: bool
    ) -> dict[str, Any]:
        sides = zip((x.height, x.width), kernel, strict=True)
        extra = [max(0, (-(-n // stride) - 1) * stride + k - n) if padding else 0 for n, k in sides]
        pads = [n // 2 for n in extra] + [n - n // 2 for n in extra]
        return {"kernel_shape": kernel, "strides": (stride, stride), "pads": pads}


def _cells(
    genotype: str, filters: float, *, side: int, stem_stride: int, repeats: int
) -> Callable[[OnnxForm], FeatureMap]:
    macro = MacroArchitecture(side, stem_stride, 0, repeats, _CLASSES)
    return lambda net: stack_cells(net, GENOTYPES[genotype], macro, filters)


def _darts(net: OnnxForm) -> FeatureMap:
    """Three cells of DARTS at 32x32, 16 channels: normal, reduction, normal."""
    cells = (False, True, False)
    before = current = net.conv(net.image(3, 32), 48, kernel=(3, 3))
    width = 16
    for place, reduction in enumerate(cells):
        width = width * 2 if reduction else width
        halve = place > 0 and cells[place - 1]
        made = _darts_cell(
            net, GENOTYPES["darts"], (before, current), width, reduction=reduction, halve=halve
        )
        before, current = current, made
    return net.logits(current, _CLASSES, relu=False)


def _darts_cell(
    net: OnnxForm,
    genotype: Genotype,
    sources: tuple[FeatureMap, FeatureMap],
    width: int,
    *,
    reduction: bool,
    halve: bool,
) -> FeatureMap:
    older, newer = sources
    first = net.factorized_reduction(older, width) if halve else net.conv(net.relu(older), width)
    results = [first, net.conv(net.relu(newer), width)]
    for block in genotype.reduction if reduction else genotype.normal:
        sides = [
            _darts_step(net, kind, results[of], width, 2 if reduction and of < 2 else 1) for kind, of in block
        ]
        results.append(net.add(*sides))
    return net.concat(results[2:])


def _darts_step(net: OnnxForm, kind: str, x: FeatureMap, width: int, stride: int) -> FeatureMap:
    match kind:
        case "identity":
            return x
        case "max3x3":
            return net.pool(x, "max", stride=stride)
        case "dil3x3":
            return net.separable(net.relu(x), width, kernel=3, stride=stride)
        case _:
            x = net.separable(net.relu(x), width, kernel=3, stride=stride)
            return net.separable(net.relu(x), width, kernel=3)


def _wired(seed: int, nodes: int, channels: int, stages: int = 1) -> Callable[[OnnxForm], FeatureMap]:
    """Stages of a small-world graph each (Xie et al., ICCV 2019): a node adds its operands, ReLU, separable convolution."""

    def build(net: OnnxForm) -> FeatureMap:
        rng = random.Random(seed)
        x = net.conv(net.image(3, 64), channels, kernel=(3, 3), stride=2)
        for stage in range(stages):
            edges = watts_strogatz(nodes, 4, 0.75, rng)
            x = _stage(net, x, channels << stage, (nodes, edges), 1 if stage == 0 else 2)
        return net.logits(x, _CLASSES)

    return build


def _stage(
    net: OnnxForm, x: FeatureMap, channels: int, wiring: tuple[int, list[Edge]], stride: int
) -> FeatureMap:
    nodes, edges = wiring
    made: list[FeatureMap] = []
    for node in range(nodes):
        operands = [made[source] for source, target in edges if target == node]
        start = _sum(net, operands) if operands else x
        made.append(net.separable(net.relu(start), channels, kernel=3, stride=1 if operands else stride))
    inner = {source for source, _ in edges}
    return _sum(net, [made[i] for i in range(nodes) if i not in inner])


def _sum(net: OnnxForm, operands: Sequence[FeatureMap]) -> FeatureMap:
    total = operands[0]
    for operand in operands[1:]:
        total = net.add(total, operand)
    return total


CASES: Final[Mapping[str, Callable[[OnnxForm], FeatureMap]]] = MappingProxyType(
    {
        "darts": _darts,
        "nasnet": _cells("nasnet", 8, side=32, stem_stride=1, repeats=1),
        "amoebanet": _cells("amoebanet", 8, side=32, stem_stride=1, repeats=1),
        "pnas": _cells("pnas", 8, side=32, stem_stride=1, repeats=1),
        "darts_imagenet": _cells("darts", 8, side=64, stem_stride=2, repeats=2),
        "randwire": _wired(1, 12, 32),
        "randwire_small": _wired(3, 10, 16),
        "randwire_wide": _wired(2, 16, 24),
        "randwire_deep": _wired(5, 10, 16, stages=2),
        "randwire_long": _wired(9, 24, 16),
    }
)


def build(name: str) -> tuple[onnx.ModelProto, OrderForm]:
    """One of `CASES` as a model file, and the same network as an ordering problem."""
    net = OnnxForm()
    output = CASES[name](net)
    return net.model(output, name), net.finish(output)
