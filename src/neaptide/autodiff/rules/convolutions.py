"""Derivatives of convolutions: with respect to the input a transposed convolution, with respect to weights a convolution."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from neaptide.autodiff.call import Call, Rule
from neaptide.autodiff.emitter import Tensor
from neaptide.autodiff.windows import Window, window_of


def transposed(g: Tensor, weight: Tensor, window: Window, group: int) -> Tensor:
    """What each window adds to the elements that it reads: (N, M, small) to (N, C, large)."""
    return g.apply(
        "ConvTranspose",
        weight,
        group=group,
        strides=window.strides,
        dilations=window.dilations,
        pads=[*window.begins, *(max(0, end) for end in window.ends)],
        output_padding=[max(0, -end) for end in window.ends],
    )


def weight_adjoint(
    data: Tensor, g: Tensor, weight: Tensor, window: Window, group: int, samples: int
) -> Tensor:
    """The sum over samples and windows of `g * data`: a convolution with batch and channels exchanged.

    Args:
        data: (N, C, large).
        g: (N, M, small).
        weight: its shape, (M, C / group, kernel), is the result's.
        window: strides and dilations change places.
        group: each group of channels is a group of this convolution, too.
        samples: N.
    """
    outputs, inner = weight.shape[:2]
    rank = len(window.large)
    spatial = range(3, 3 + rank)
    split = (samples, group, inner, *window.large)
    rows = data.reshape(split) if group > 1 else data
    if group > 1:
        rows = rows.permute([2, 1, 0, *spatial], split).reshape([inner, group * samples, *window.large])
    else:
        rows = rows.permute([1, 0, *range(2, 2 + rank)], (samples, inner, *window.large))
    kernels = g.permute([1, 0, *range(2, 2 + rank)], (samples, outputs, *window.small))
    found = rows.apply(
        "Conv",
        kernels,
        group=group,
        strides=window.dilations,
        dilations=window.strides,
        pads=[*window.begins, *(max(0, end) for end in window.ends)],
    )
    unread = [max(0, -end) // step for end, step in zip(window.ends, window.dilations, strict=True)]
    axes = [axis for axis, extra in enumerate(unread) if extra]
    if axes:
        ends = [window.kernel[axis] for axis in axes]
        found = found.slice([0] * len(axes), ends, [1] * len(axes), [axis + 2 for axis in axes])
    return found.permute([1, 0, *range(2, 2 + rank)], (inner, outputs, *window.kernel))


def _bias_adjoint(c: Call) -> Tensor:
    return c.g.sum([0, *range(2, len(c.y.dims))], keep=False)


def _conv(c: Call) -> list[Tensor | None]:
    window, group = window_of(c), c.attribute("group", 1)
    return [
        transposed(c.g, c.b, window, group) if c.wanted[0] else None,
        weight_adjoint(c.a, c.g, c.b, window, group, c.a.shape[0]) if c.wanted[1] else None,
        _bias_adjoint(c),
    ][: len(c.node.inputs)]


def _conv_transpose(c: Call) -> list[Tensor | None]:
    """The input's adjoint is a convolution; the weights' one is that of this convolution."""
    window, group = window_of(c, transposed=True), c.attribute("group", 1)
    if any(-end >= stride for end, stride in zip(window.ends, window.strides, strict=True)):
        raise c.refusal("its output_padding is at least a stride")
    data = c.g.apply(
        "Conv",
        c.b,
        group=group,
        strides=window.strides,
        dilations=window.dilations,
        pads=[*window.begins, *(max(0, end) for end in window.ends)],
    )
    return [
        data if c.wanted[0] else None,
        weight_adjoint(c.g, c.a, c.b, window, group, c.a.shape[0]) if c.wanted[1] else None,
        _bias_adjoint(c),
    ][: len(c.node.inputs)]


RULES: Final[Mapping[str, Rule]] = {"Conv": _conv, "ConvTranspose": _conv_transpose}
