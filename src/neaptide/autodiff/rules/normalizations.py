"""Derivatives of normalisations. They save the input, not its normalised copy: a zero scale hides it in the result."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import onnx_ir as ir

from neaptide.autodiff.call import Call, Rule
from neaptide.autodiff.emitter import Tensor


def _through(gs: Tensor, normal: Tensor, inverse: Tensor, axes: Sequence[int]) -> Tensor:
    """The input's adjoint, from the adjoint of the normalised input, over the axes of its statistics."""
    return (gs - gs.mean(axes) - normal * (gs * normal).mean(axes)) * inverse


def _statistics(x: Tensor, axes: Sequence[int], epsilon: float) -> tuple[Tensor, Tensor]:
    """The normalised input and the inverse of its standard deviation."""
    centred = x - x.mean(axes)
    inverse = ((centred * centred).mean(axes) + epsilon).apply("Sqrt").apply("Reciprocal")
    return centred * inverse, inverse


def _layer_norm(c: Call) -> list[Tensor | None]:
    """Saves the input, its means and deviations, which the operator gives as further results."""
    rank = len(c.a.dims)
    first = c.attribute("axis", -1) % rank
    axes = list(range(first, rank))
    stash = ir.DataType(c.attribute("stash_type", 1))
    if c.a.dtype == ir.DataType.DOUBLE:  # statistics in float32 would lose digits
        normal, inverse = _statistics(c.a, axes, c.attribute("epsilon", 1e-5))
    else:
        inverse = c.result(2, stash).cast(c.a.dtype)
        normal = (c.a - c.result(1, stash).cast(c.a.dtype)) * inverse
    found: list[Tensor | None] = [None] * len(c.node.inputs)
    x: Tensor | None = None
    if c.adjoints[0] is not None:
        x = _through(c.g * c.b, normal, inverse, axes)
        found[1] = c.reduced(c.g * normal, c.b)
        if len(found) > 2:
            found[2] = c.reduced(c.g.apply("Identity"), c.input(2))
    count = math.prod(c.a.shape[first:])
    for adjoint, is_mean in zip(c.adjoints[1:], (True, False), strict=False):
        if adjoint is not None:
            g = adjoint.cast(c.a.dtype) * (1 / count)
            extra = g.expand_as(c.a) if is_mean else -(g * (inverse * inverse) * normal)
            x = extra if x is None else x + extra
    return [x, *found[1:]]


def _per_channel(c: Call, tensor: Tensor) -> Tensor:
    """A vector of channels, in a shape that broadcasts along axis 1."""
    return tensor.reshape([-1, *[1] * (len(c.a.dims) - 2)])


def _batch_norm(c: Call) -> list[Tensor | None]:
    epsilon, rank = c.attribute("epsilon", 1e-5), len(c.a.dims)
    axes = [0, *range(2, rank)]
    scale = _per_channel(c, c.b)
    bias = c.g.sum(axes, keep=False)
    if c.attribute("training_mode", 0):
        normal, inverse = _statistics(c.a, axes, epsilon)
        return [
            _through(c.g * scale, normal, inverse, axes),
            (c.g * normal).sum(axes, keep=False),
            bias,
            None,
            None,
        ]
    inverse = (c.input(4) + epsilon).apply("Sqrt").apply("Reciprocal")
    factor = c.b * inverse
    spread = (c.g * (c.a - _per_channel(c, c.input(3)))).sum(axes, keep=False)
    return [
        c.g * _per_channel(c, factor),
        spread * inverse,
        bias,
        -(bias * factor),
        spread * (factor * (inverse * inverse) * -0.5),
    ]


def _instance_norm(c: Call) -> list[Tensor | None]:
    rank = len(c.a.dims)
    normal, inverse = _statistics(c.a, list(range(2, rank)), c.attribute("epsilon", 1e-5))
    others = [0, *range(2, rank)]
    return [
        _through(c.g * _per_channel(c, c.b), normal, inverse, list(range(2, rank))),
        (c.g * normal).sum(others, keep=False),
        c.g.sum(others, keep=False),
    ]


def _rms_norm(c: Call) -> list[Tensor | None]:
    rank = len(c.a.dims)
    axes = list(range(c.attribute("axis", -1) % rank, rank))
    inverse = ((c.a * c.a).mean(axes) + c.attribute("epsilon", 1e-5)).apply("Sqrt").apply("Reciprocal")
    normal, gs = c.a * inverse, c.g * c.b
    return [(gs - normal * (gs * normal).mean(axes)) * inverse, c.reduced(c.g * normal, c.b)]


RULES: Final[Mapping[str, Rule]] = {
    "LayerNormalization": _layer_norm,
    "BatchNormalization": _batch_norm,
    "InstanceNormalization": _instance_norm,
    "RMSNormalization": _rms_norm,
}
