"""Derivatives of the losses of classification."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import numpy as np

from neaptide.autodiff.call import Call, Rule
from neaptide.autodiff.emitter import Tensor


def _targets(c: Call, g: Tensor) -> tuple[Tensor, Tensor]:
    """The labels as one-hot vectors along axis 1, and the weight of each sample in the adjoint, which broadcasts."""
    labels, classes = c.b, c.a.shape[1]
    ignored, weights = c.attribute("ignore_index"), c.optional(2)
    weight = None
    if ignored is not None:
        mask = labels.equal(ignored)
        labels = mask.where(0, labels)
    if weights is not None:
        weight = weights.apply("Gather", labels, axis=0)
    if ignored is not None:
        weight = mask.where(0, g.like(1) if weight is None else weight, like=g)
    factor = g if weight is None else g * weight
    if c.attribute("reduction", "mean") == "mean":
        total = math.prod(c.b.shape) if weight is None else None
        whole = factor * (1 / total) if total else factor / _sum(c, weight)
    else:
        whole = factor
    if weight is not None or c.attribute("reduction", "mean") == "none":
        whole = whole.apply("Unsqueeze", c.emitter.ints([1]))
    kinds = np.asarray([0, 1], dtype=g.dtype.numpy())
    depth = labels.like(classes)
    one_hot = labels.apply("OneHot", depth, c.emitter.constant(kinds), dtype=g.dtype, axis=1)
    return one_hot, whole


def _sum(c: Call, weight: Tensor | None) -> Tensor:
    assert weight is not None
    return weight.sum(range(len(c.b.shape)), keep=False)


def _negative_log_likelihood(c: Call) -> list[Tensor | None]:
    one_hot, weight = _targets(c, c.g)
    return [-(one_hot * weight)]


def _cross_entropy(c: Call) -> list[Tensor | None]:
    """Saves the logarithms of the probabilities, the operator's second result, not the scores."""
    logs = c.result(1, c.a.dtype)
    found: Tensor | None = None
    if c.adjoints[0] is not None:
        one_hot, weight = _targets(c, c.adjoints[0])
        found = (logs.apply("Exp") - one_hot) * weight
    if len(c.adjoints) > 1 and c.adjoints[1] is not None:
        extra = c.adjoints[1] - logs.apply("Exp") * c.adjoints[1].sum([1])
        found = extra if found is None else found + extra
    return [found]


RULES: Final[Mapping[str, Rule]] = {
    "NegativeLogLikelihoodLoss": _negative_log_likelihood,
    "SoftmaxCrossEntropyLoss": _cross_entropy,
}
