"""Kernel, strides and padding of convolutions and pools, with every implicit padding resolved."""

from __future__ import annotations

from dataclasses import dataclass

from neaptide.autodiff.call import Call


@dataclass(frozen=True, slots=True)
class Window:
    """How windows lie on the spatial axes of a larger tensor; each attribute has one number per axis.

    Attributes:
        large: sizes of the tensor that windows read (of a convolution: its input).
        small: number of windows.
        kernel: elements of a window.
        strides: between windows.
        dilations: between elements of a window.
        begins: padding before the first element.
    """

    large: tuple[int, ...]
    small: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]

    @property
    def ends(self) -> tuple[int, ...]:
        """Padding after the last element that the last window needs; negative where it leaves elements unread."""
        rows = zip(
            self.large, self.small, self.kernel, self.strides, self.dilations, self.begins, strict=True
        )
        return tuple((o - 1) * s + (k - 1) * d + 1 - b - i for i, o, k, s, d, b in rows)

    @property
    def is_tiling(self) -> bool:
        """Whether windows lie side by side, without overlap, gap or padding."""
        return (
            self.kernel == self.strides
            and set(self.dilations) == {1}
            and not any(self.begins)
            and max(self.ends) <= 0
        )


def window_of(c: Call, *, transposed: bool = False) -> Window:
    """The windows of a convolution or pool; of a transposed convolution, those that it is the adjoint of."""
    data, result = c.a.shape[2:], c.y.shape[2:]
    large, small = (result, data) if transposed else (data, result)
    rank = len(large)
    kernel = c.attribute("kernel_shape")
    if kernel is None:
        kernel = c.b.shape[2:]
    strides = tuple(c.attribute("strides", [1] * rank))
    dilations = tuple(c.attribute("dilations", [1] * rank))
    begins = tuple(c.attribute("pads", [0] * 2 * rank)[:rank])
    padding = c.attribute("auto_pad", "NOTSET")
    if padding.startswith("SAME") or c.attribute("output_shape") is not None:
        rows = zip(large, small, kernel, strides, dilations, strict=True)
        totals = [max((o - 1) * s + (k - 1) * d + 1 - i, 0) for i, o, k, s, d in rows]
        begins = tuple(t - t // 2 if padding == "SAME_LOWER" else t // 2 for t in totals)
    return Window(large, small, tuple(kernel), strides, dilations, begins)
