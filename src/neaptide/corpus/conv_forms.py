"""Convolutional inference graphs as ordering problems: operations on feature maps, each knowing its bytes.

The memory model is that of HMCOS (Wang et al., DAC 2022): activations only, fp32, batch 1, the image counted until its
last reader, parameters not counted, no workspace; an elementwise operation may overwrite its first operand of equal
size where that is the operand's last use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from neaptide.corpus.order_forms import FormBuilder, OrderForm

_FLOAT_BYTES: Final = 4
_INDEX_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class FeatureMap:
    """A `channels x height x width` fp32 tensor in one storage."""

    storage: str
    channels: int
    height: int
    width: int

    @property
    def nbytes(self) -> int:
        return _FLOAT_BYTES * self.channels * self.height * self.width


@dataclass(frozen=True, slots=True)
class ConvStyle:
    """What is an operation, and what may share bytes.

    Attributes:
        fuse_batch_norm: a batch norm behind a convolution is folded into it.
        in_place: elementwise operations may overwrite their first operand of equal size.
        pool_indices: max pooling makes 8-byte indices too, as PyTorch's operator does, freed at once.
        explicit_padding: "same" padding of a strided window is an operation that makes a padded copy.
    """

    fuse_batch_norm: bool = True
    in_place: bool = True
    pool_indices: bool = False
    explicit_padding: bool = False


COMPILED: Final = ConvStyle()
CAPTURED: Final = ConvStyle(fuse_batch_norm=False, in_place=False, pool_indices=True, explicit_padding=True)


class ConvForm:
    """A convolutional network in the making; every method appends operations and returns the last result."""

    def __init__(self, style: ConvStyle = COMPILED) -> None:
        self._form = FormBuilder()
        self._style = style

    def image(self, channels: int, side: int) -> FeatureMap:
        return FeatureMap(self._form.storage(_FLOAT_BYTES * channels * side * side), channels, side, side)

    def result(
        self,
        kind: str,
        operands: Sequence[FeatureMap],
        shape: tuple[int, int, int],
        *,
        elementwise: bool = False,
        unread_bytes: Sequence[int] = (),
    ) -> FeatureMap:
        """Append one operation that makes one feature map, and storages that nothing reads."""
        made = FeatureMap("", *shape)
        pairs = [(0, x.storage) for x in operands if x.nbytes == made.nbytes][:1]
        storages = self._form.op(
            kind,
            reads=[x.storage for x in operands],
            sizes=[made.nbytes, *unread_bytes],
            in_place=pairs if elementwise and self._style.in_place else (),
        )
        return FeatureMap(storages[0], *shape)

    def conv(
        self,
        x: FeatureMap,
        channels: int,
        *,
        kernel: int = 1,
        stride: int = 1,
        kind: str = "conv",
        norm: bool = True,
        padding: bool = True,
    ) -> FeatureMap:
        """A convolution, `kernel` wide; `norm` puts a batch norm behind it, `padding` is "same"."""
        height, width = _windows(x, kernel, stride, padding=padding)
        operand = self._padded(x, kernel, stride) if padding else x
        out = self.result(kind, [operand], (channels, height, width))
        return self.batch_norm(out) if norm and not self._style.fuse_batch_norm else out

    def pool(
        self, x: FeatureMap, kind: str, *, kernel: int = 3, stride: int = 1, padding: bool = True
    ) -> FeatureMap:
        """`max` or `avg` pooling."""
        height, width = _windows(x, kernel, stride, padding=padding)
        operand = self._padded(x, kernel, stride) if padding else x
        with_indices = kind == "max" and self._style.pool_indices
        indices = [_INDEX_BYTES * x.channels * height * width] if with_indices else []
        return self.result(f"{kind}_pool", [operand], (x.channels, height, width), unread_bytes=indices)

    def separable(
        self,
        x: FeatureMap,
        channels: int,
        *,
        kernel: int,
        stride: int = 1,
        middle: int | None = None,
        norm: bool = True,
    ) -> FeatureMap:
        """Depthwise convolution, then pointwise to `channels` (or `middle`)."""
        deep = self.conv(x, x.channels, kernel=kernel, stride=stride, kind="depthwise", norm=False)
        return self.conv(deep, channels if middle is None else middle, kind="pointwise", norm=norm)

    def relu(self, x: FeatureMap) -> FeatureMap:
        return self.result("relu", [x], (x.channels, x.height, x.width), elementwise=True)

    def add(self, x: FeatureMap, y: FeatureMap) -> FeatureMap:
        return self.result("add", [x, y], (x.channels, x.height, x.width), elementwise=True)

    def batch_norm(self, x: FeatureMap) -> FeatureMap:
        return self.result("batch_norm", [x], (x.channels, x.height, x.width))

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
        shifted = self.result("shift" if one_shift else "crop", [shifted], (x.channels, x.height, x.width))
        second = self.pool(shifted, "avg", kernel=1, stride=2, padding=False)
        second = self.conv(second, channels // 2, norm=False)
        return self.batch_norm(self.concat([first, second]))

    def classifier(self, x: FeatureMap, classes: int, *, relu: bool = True, bias: bool = True) -> OrderForm:
        """Global average pooling and a dense layer; its result is the network's output.

        Args:
            x: the last map.
            classes: width of the result.
            relu: with an activation first.
            bias: added by an operation of its own.
        """
        x = self.result("global_avg_pool", [self.relu(x) if relu else x], (x.channels, 1, 1))
        x = self.result("dense", [x], (classes, 1, 1))
        if bias:
            x = self.result("bias", [x], (classes, 1, 1), elementwise=True)
        return self.finish(x)

    def finish(self, output: FeatureMap) -> OrderForm:
        self._form.keep(output.storage)
        return self._form.finish()

    def _padded(self, x: FeatureMap, kernel: int, stride: int) -> FeatureMap:
        if stride == 1 or not self._style.explicit_padding:
            return x
        height, width = ((-(-side // stride) - 1) * stride + kernel for side in (x.height, x.width))
        return self.result("pad", [x], (x.channels, max(height, x.height), max(width, x.width)))


def _windows(x: FeatureMap, kernel: int, stride: int, *, padding: bool) -> tuple[int, int]:
    """Height and width of the result of a sliding window."""
    lost = 0 if padding else kernel - 1
    return -(-(x.height - lost) // stride), -(-(x.width - lost) // stride)
