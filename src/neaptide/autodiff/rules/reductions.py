"""Derivatives of reductions and of softmax."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

from neaptide.autodiff.call import Call, Rule
from neaptide.autodiff.emitter import Tensor


def reduced_axes(c: Call) -> list[int]:
    """The axes over which a reduction goes; axes are an input since opset 13 or 18."""
    rank = len(c.a.dims)
    axes = c.attribute("axes")
    if axes is None and len(c.node.inputs) > 1:
        axes = c.ints(1)
    if not axes:
        return [] if c.attribute("noop_with_empty_axes", 0) else list(range(rank))
    return sorted(int(axis) % rank for axis in axes)


def _kept(c: Call, tensor: Tensor, axes: list[int]) -> Tensor:
    """A tensor in the shape of the result, with the reduced axes of size one."""
    if c.attribute("keepdims", 1) or not axes:
        return tensor
    return tensor.apply("Unsqueeze", c.emitter.ints(axes))


def _from(slope: Callable[[Call, Tensor, list[int]], Tensor]) -> Rule:
    """A rule from the adjoint in terms of the result's adjoint with all axes."""

    def rule(c: Call) -> list[Tensor | None]:
        axes = reduced_axes(c)
        return [slope(c, _kept(c, c.g, axes), axes)]

    return rule


def _mean(c: Call, g: Tensor, axes: list[int]) -> Tensor:
    return (g * (1 / math.prod(c.a.shape[axis] for axis in axes))).expand_as(c.a)


def _extreme(c: Call, g: Tensor, axes: list[int]) -> Tensor:
    """Equal extremes share the adjoint."""
    mask = c.a.equal(_kept(c, c.y, axes)).cast(g.dtype)
    return mask * (g / mask.sum(axes))


def _log_sum_exp(c: Call, g: Tensor, axes: list[int]) -> Tensor:
    return (c.a - _kept(c, c.y, axes)).apply("Exp") * g


def _softmax(c: Call) -> list[Tensor | None]:
    axis = c.attribute("axis", -1)
    weighted = c.g * c.y
    return [weighted - c.y * weighted.sum([axis])]


def _log_softmax(c: Call) -> list[Tensor | None]:
    return [c.g - c.y.apply("Exp") * c.g.sum([c.attribute("axis", -1)])]


def _global_average(c: Call) -> list[Tensor | None]:
    return [(c.g * (1 / math.prod(c.a.shape[2:]))).expand_as(c.a)]


def _global_max(c: Call) -> list[Tensor | None]:
    mask = c.a.equal(c.y).cast(c.g.dtype)
    return [mask * (c.g / mask.sum(range(2, len(c.a.dims))))]


def _cumulative_sum(c: Call) -> list[Tensor | None]:
    options = {"exclusive": c.attribute("exclusive", 0), "reverse": 1 - c.attribute("reverse", 0)}
    return [c.g.apply("CumSum", c.b, **options)]


RULES: Final[Mapping[str, Rule]] = {
    "ReduceSum": _from(lambda c, g, _: g.expand_as(c.a)),
    "ReduceMean": _from(_mean),
    "ReduceMax": _from(_extreme),
    "ReduceMin": _from(_extreme),
    "ReduceSumSquare": _from(lambda c, g, _: c.a * 2 * g),
    "ReduceL1": _from(lambda c, g, _: c.a.apply("Sign") * g),
    "ReduceL2": _from(lambda c, g, axes: c.a * (g / _kept(c, c.y, axes))),
    "ReduceLogSumExp": _from(_log_sum_exp),
    "Softmax": _softmax,
    "LogSoftmax": _log_softmax,
    "GlobalAveragePool": _global_average,
    "GlobalMaxPool": _global_max,
    "CumSum": _cumulative_sum,
}
