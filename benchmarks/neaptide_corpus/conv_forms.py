"""Convolutional inference graphs as ordering problems: operations on feature maps, each knowing its bytes.

The memory model is that of HMCOS (Wang et al., DAC 2022): activations only, fp32, batch 1, the image counted until its
last reader, parameters not counted, no workspace; an elementwise operation may overwrite its first operand of equal
size where that is the operand's last use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from neaptide.errors import UsageError
from neaptide_corpus.order_forms import FormBuilder, OrderForm

_FLOAT_BYTES: Final = 4
_INDEX_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class FeatureMap:
    """A `channels x height x width` fp32 tensor in one storage."""

    storage: str
    channels: int
    height: int
    width: int
    batch: int = 1

    @property
    def nbytes(self) -> int:
        return _FLOAT_BYTES * self.batch * self.channels * self.height * self.width

    @property
    def shape(self) -> tuple[int, int, int]:
        return (self.channels, self.height, self.width)


@dataclass(frozen=True, slots=True)
class Layer:
    """One operation, for whoever differentiates the network.

    Attributes:
        kind: of the operation.
        operands: feature maps that it reads.
        made: its result.
        extra: further storages that it makes: indices of a max pooling, statistics of a batch norm.
        parameter_bytes: of its weights; 0 for none.
    """

    kind: str
    operands: tuple[FeatureMap, ...]
    made: FeatureMap
    extra: tuple[str, ...] = ()
    parameter_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ConvStyle:
    """What is an operation, and what may share bytes.

    Attributes:
        fuse_batch_norm: a batch norm after a convolution is folded into it.
        in_place: elementwise operations may overwrite their first operand of equal size.
        pool_indices: max pooling makes 8-byte indices too, as PyTorch's operator does, freed at once.
        explicit_padding: "same" padding of a strided window is an operation that makes a padded copy.
        batch_statistics: batch norms make mean and inverse deviation by channel too, as in training.
    """

    fuse_batch_norm: bool = True
    in_place: bool = True
    pool_indices: bool = False
    explicit_padding: bool = False
    batch_statistics: bool = False


COMPILED: Final = ConvStyle()
CAPTURED: Final = ConvStyle(fuse_batch_norm=False, in_place=False, pool_indices=True, explicit_padding=True)


class ConvForm:
    """A convolutional network in the making; every method appends operations and returns the last result.

    Attributes:
        form: the ordering problem so far.
        layers: its operations as layers, in order.
    """

    def __init__(self, style: ConvStyle = COMPILED, *, batch: int = 1) -> None:
        self.form = FormBuilder()
        self.layers: list[Layer] = []
        self._style = style
        self._batch = batch

    def image(self, channels: int, side: int) -> FeatureMap:
        shape = FeatureMap("", channels, side, side, self._batch)
        return replace(shape, storage=self.form.storage(shape.nbytes))

    def result(
        self,
        kind: str,
        operands: Sequence[FeatureMap],
        shape: tuple[int, int, int],
        *,
        elementwise: bool = False,
        extra_bytes: Sequence[int] = (),
        parameter_bytes: int = 0,
    ) -> FeatureMap:
        """Append one operation that makes a feature map of this shape, and further storages."""
        made = FeatureMap("", *shape, self._batch)
        pairs = [(0, x.storage) for x in operands if x.nbytes == made.nbytes][:1]
        storages = self.form.op(
            kind,
            reads=[x.storage for x in operands],
            sizes=[made.nbytes, *extra_bytes],
            in_place=pairs if elementwise and self._style.in_place else (),
        )
        made = replace(made, storage=storages[0])
        self.layers.append(Layer(kind, tuple(operands), made, tuple(storages[1:]), parameter_bytes))
        return made

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
        """A convolution; `norm` puts a batch norm after it, `padding` is "same"."""
        height, width = _windows(x, kernel, stride, padding=padding)
        operand = self._padded(x, kernel, stride) if padding else x
        elements = kernel[0] * kernel[1] * channels * (1 if kind == "depthwise" else x.channels)
        out = self.result(kind, [operand], (channels, height, width), parameter_bytes=_FLOAT_BYTES * elements)
        return self.batch_norm(out) if norm and not self._style.fuse_batch_norm else out

    def pool(
        self, x: FeatureMap, kind: str, *, kernel: int = 3, stride: int = 1, padding: bool = True
    ) -> FeatureMap:
        """`max` or `avg` pooling."""
        window = (kernel, kernel)
        height, width = _windows(x, window, stride, padding=padding)
        operand = self._padded(x, window, stride) if padding else x
        with_indices = kind == "max" and self._style.pool_indices
        indices = [_INDEX_BYTES * self._batch * x.channels * height * width] if with_indices else []
        return self.result(f"{kind}_pool", [operand], (x.channels, height, width), extra_bytes=indices)

    def separable(self, x: FeatureMap, channels: int, *, kernel: int, stride: int = 1) -> FeatureMap:
        """A depthwise convolution, then a pointwise one."""
        window = (kernel, kernel)
        deep = self.conv(x, x.channels, kernel=window, stride=stride, kind="depthwise", norm=False)
        return self.conv(deep, channels, kind="pointwise")

    def relu(self, x: FeatureMap) -> FeatureMap:
        return self.result("relu", [x], x.shape, elementwise=True)

    def add(self, x: FeatureMap, y: FeatureMap) -> FeatureMap:
        """The sum of two maps. Raises UsageError if their shapes differ."""
        if x.shape != y.shape:
            raise UsageError(
                f"maps of shapes {x.shape} and {y.shape} cannot be added",
                next_step="look for an identity on an input of a reduction cell",
            )
        return self.result("add", [x, y], x.shape, elementwise=True)

    def batch_norm(self, x: FeatureMap) -> FeatureMap:
        statistics = [_FLOAT_BYTES * x.channels] * 2 if self._style.batch_statistics else []
        return self.result(
            "batch_norm", [x], x.shape, extra_bytes=statistics, parameter_bytes=2 * _FLOAT_BYTES * x.channels
        )

    def concat(self, parts: Sequence[FeatureMap]) -> FeatureMap:
        shape = (sum(part.channels for part in parts), parts[0].height, parts[0].width)
        return self.result("concat", parts, shape)

    def factorized_reduction(self, x: FeatureMap, channels: int, *, one_shift: bool = False) -> FeatureMap:
        """Half the side by two shifted 1x1 poolings and convolutions side by side (NASNet's code).

        Args:
            x: the map, activated here.
            channels: of the result; each half makes `channels // 2`.
            one_shift: shift in one operation (negative padding) instead of padding, then cropping.
        """
        x = self.relu(x)
        first = self.pool(x, "avg", kernel=1, stride=2, padding=False)
        first = self.conv(first, channels // 2, norm=False)
        shifted = x
        if not one_shift:
            shifted = self.result("pad", [x], (x.channels, x.height + 1, x.width + 1))
        shifted = self.result("shift" if one_shift else "crop", [shifted], x.shape)
        second = self.pool(shifted, "avg", kernel=1, stride=2, padding=False)
        second = self.conv(second, channels // 2, norm=False)
        return self.batch_norm(self.concat([first, second]))

    def logits(self, x: FeatureMap, classes: int, *, relu: bool = True, bias: bool = True) -> FeatureMap:
        """Global average pooling and a dense layer.

        Args:
            x: the last map.
            classes: width of the result.
            relu: with an activation first.
            bias: added by an operation of its own.
        """
        x = self.result("global_avg_pool", [self.relu(x) if relu else x], (x.channels, 1, 1))
        return self.dense(x, classes, bias=bias)

    def dense(self, x: FeatureMap, width: int, *, bias: bool = True) -> FeatureMap:
        """A fully connected layer on a flattened map; `bias` is added by an operation of its own."""
        elements = x.channels * x.height * x.width * width
        x = self.result("dense", [x], (width, 1, 1), parameter_bytes=_FLOAT_BYTES * elements)
        if bias:
            x = self.result("bias", [x], x.shape, elementwise=True, parameter_bytes=_FLOAT_BYTES * width)
        return x

    def finish(self, output: FeatureMap) -> OrderForm:
        self.form.keep(output.storage)
        return self.form.finish()

    def _padded(self, x: FeatureMap, kernel: tuple[int, int], stride: int) -> FeatureMap:
        if stride == 1 or not self._style.explicit_padding:
            return x
        sides = zip((x.height, x.width), kernel, strict=True)
        height, width = (max(side, (-(-side // stride) - 1) * stride + window) for side, window in sides)
        return self.result("pad", [x], (x.channels, height, width))


def _windows(x: FeatureMap, kernel: tuple[int, int], stride: int, *, padding: bool) -> tuple[int, int]:
    """Height and width of the result of a sliding window."""
    height, width = (
        side if padding else side - window + 1
        for side, window in zip((x.height, x.width), kernel, strict=True)
    )
    return -(-height // stride), -(-width // stride)
