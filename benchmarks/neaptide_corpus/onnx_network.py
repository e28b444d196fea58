"""Writes convolutional networks as ONNX models, layer by layer, with seeded weights and known shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

OPSET: Final = 18
_IR_VERSION: Final = 9
_FLOAT: Final = 1  # `TensorProto.FLOAT`


@dataclass(frozen=True, slots=True)
class Tensor:
    """A result of a network: its name and its shape, batch first."""

    name: str
    shape: tuple[int, ...]

    @property
    def channels(self) -> int:
        return self.shape[1]


class OnnxNetwork:
    """One model while it is written. Layers take tensors of it and return their result.

    Attributes:
        has_norms: whether batch norms stand in the file; most exporters fold them into convolutions.
    """

    def __init__(self, name: str, seed: int, *, has_norms: bool = True) -> None:
        self.name, self.has_norms = name, has_norms
        self._generator = np.random.default_rng(seed)
        self._nodes: list[NodeProto] = []
        self._weights: list[Any] = []
        self._inputs: list[Tensor] = []

    def input(self, *shape: int) -> Tensor:
        """An input of the model, in a batch of one."""
        tensor = Tensor(f"input_{len(self._inputs)}", (1, *shape))
        self._inputs.append(tensor)
        return tensor

    def convolution(
        self, x: Tensor, channels: int, kernel: int, *, stride: int = 1, groups: int = 1, bias: bool = False
    ) -> Tensor:
        """A convolution of a square kernel, padded so that a stride of 1 keeps the side."""
        shape = (channels, x.channels // groups, kernel, kernel)
        weights = [self._random(shape, scale=float(np.prod(shape[1:])) ** -0.5)]
        if bias:
            weights.append(self._random((channels,), scale=0.1))
        sides = self._sides(x, kernel, stride)
        return self._node(
            "Conv", [x.name, *weights], (1, channels, *sides), group=groups, **_window(kernel, stride)
        )

    def normalised(self, x: Tensor) -> Tensor:
        """Batch normalisation of inference, with weights of its own; nothing in a model without."""
        if not self.has_norms:
            return x
        n = x.channels
        scale, shift, mean = (self._random((n,), scale=0.2, around=around) for around in (1.0, 0.0, 0.0))
        variance = self._weight(self._generator.uniform(0.5, 1.5, n).astype(np.float32))
        return self._node("BatchNormalization", [x.name, scale, shift, mean, variance], x.shape)

    def relu(self, x: Tensor) -> Tensor:
        return self._node("Relu", [x.name], x.shape)

    def relu6(self, x: Tensor) -> Tensor:
        ends = [self._weight(np.array(end, np.float32)) for end in (0.0, 6.0)]
        return self._node("Clip", [x.name, *ends], x.shape)

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        return self._node("Add", [x.name, y.name], x.shape)

    def join(self, tensors: Sequence[Tensor]) -> Tensor:
        """Tensors of the same sides beside each other, as channels."""
        first = tensors[0].shape
        shape = (first[0], sum(tensor.channels for tensor in tensors), *first[2:])
        return self._node("Concat", [tensor.name for tensor in tensors], shape, axis=1)

    def max_pool(self, x: Tensor, kernel: int, stride: int = 0) -> Tensor:
        return self._pool("MaxPool", x, kernel, stride or kernel)

    def average_pool(self, x: Tensor, kernel: int, stride: int = 0) -> Tensor:
        return self._pool("AveragePool", x, kernel, stride or kernel)

    def mean(self, x: Tensor) -> Tensor:
        """Of each channel."""
        return self._node("GlobalAveragePool", [x.name], (*x.shape[:2], 1, 1))

    def upsampled(self, x: Tensor) -> Tensor:
        """Twice the sides, each element four times."""
        scales = self._weight(np.array([1, 1, 2, 2], np.float32))
        shape = (*x.shape[:2], *(2 * side for side in x.shape[2:]))
        how = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        return self._node("Resize", [x.name, "", scales], shape, **how)

    def flatten(self, x: Tensor) -> Tensor:
        return self._node("Flatten", [x.name], (1, int(np.prod(x.shape[1:]))))

    def dense(self, x: Tensor, features: int) -> Tensor:
        """A product with a weight, and a bias, of what is flat."""
        weight = self._random((features, x.channels), scale=x.channels**-0.5)
        bias = self._random((features,), scale=0.1)
        return self._node("Gemm", [x.name, weight, bias], (1, features), transB=1)

    def finish(self, result: Tensor) -> ModelProto:
        """The model with its result; checked by `onnx`."""
        import onnx
        from onnx import helper

        infos = [helper.make_tensor_value_info(x.name, _FLOAT, x.shape) for x in (*self._inputs, result)]
        graph = helper.make_graph(self._nodes, self.name, infos[:-1], infos[-1:], self._weights)
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=_IR_VERSION
        )
        onnx.checker.check_model(model, full_check=True)
        return model

    def _pool(self, op: str, x: Tensor, kernel: int, stride: int) -> Tensor:
        if kernel == stride:
            sides = tuple(side // kernel for side in x.shape[2:])
            window = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2}
        else:
            sides, window = self._sides(x, kernel, stride), _window(kernel, stride)
        return self._node(op, [x.name], (*x.shape[:2], *sides), **window)

    @staticmethod
    def _sides(x: Tensor, kernel: int, stride: int) -> tuple[int, ...]:
        return tuple((side + 2 * (kernel // 2) - kernel) // stride + 1 for side in x.shape[2:])

    def _node(self, op: str, inputs: Sequence[str], shape: tuple[int, ...], **attributes: Any) -> Tensor:
        from onnx import helper

        name = f"{op.lower()}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return Tensor(name, shape)

    def _random(self, shape: tuple[int, ...], *, scale: float, around: float = 0.0) -> str:
        return self._weight((around + scale * self._generator.standard_normal(shape)).astype(np.float32))

    def _weight(self, array: npt.NDArray[np.float32]) -> str:
        from onnx import numpy_helper

        name = f"weight_{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(array, name))
        return name


def _window(kernel: int, stride: int) -> dict[str, list[int]]:
    return {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [kernel // 2] * 4}
