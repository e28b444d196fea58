"""How far numbers may be from eager's where sums are taken in another order."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import torch

from neaptide.analysis.sum_depth import deepest_sum
from neaptide.ir.graph import Graph
from neaptide.ir.registry import OpRegistry

_FLOATS: Final = ("float64", "float32", "float16", "bfloat16")


@dataclass(frozen=True)
class Tolerance:
    """What is allowed of tensors that one program makes in another order of sums.

    Half of the digits, of the largest number in a tensor: sums in another order round differently, and steps of training
    magnify that. Beside that the roundings of one sum, of the largest number in all tensors of its group: a gradient that
    is zero by algebra, such as that of a bias in front of a norm, is nothing but rounding. A sum of `n` terms in another
    order differs by about `sqrt(n)` roundings of the dtype (docs/explanation/numerics.md; Higham, Accuracy and Stability of
    Numerical Algorithms, 4.2). Beyond `1 / eps` terms a sum tells nothing in that dtype, so no more of them count, and this
    is half of the digits at most as well.
    """

    eps: float
    terms: int

    @staticmethod
    def of(graphs: Iterable[Graph], registry: OpRegistry) -> Tolerance:
        """Of a program's graphs: under autocast, numbers of float32 are as coarse as what they are cast from."""
        seen = list(graphs)
        found = {value.dtype for graph in seen for value in graph.values}
        dtypes = [getattr(torch, name) for name in _FLOATS if name in found]
        eps = max((torch.finfo(dtype).eps for dtype in dtypes), default=0.0)
        return Tolerance(eps, max((deepest_sum(graph, registry) for graph in seen), default=1))

    def allowed(self, expected: torch.Tensor | None, largest: float) -> float:
        """Largest absolute difference of a tensor; `largest` is the largest number in its group."""
        if expected is None or not _has_rounding(expected):
            return 0.0
        eps = max(self.eps, torch.finfo(expected.dtype).eps)
        return math.sqrt(eps) * largest_number([expected]) + self._of_one_sum(eps) * largest

    def noise(self, largest: float) -> float:
        """Gradients up to this size tell nothing, not even a sign; `largest` is that of all gradients."""
        return self._of_one_sum(self.eps) * largest

    def _of_one_sum(self, eps: float) -> float:
        """Rounding of the deepest sum, as a share of what such sums come to."""
        return min(math.sqrt(self.terms) * eps, math.sqrt(eps))


def largest_number(tensors: Iterable[torch.Tensor]) -> float:
    """The largest absolute value, of what is finite; 0.0 where there is none."""
    found = 0.0
    for tensor in tensors:
        if _has_rounding(tensor):
            sizes = tensor.abs().double()
            found = max(found, float(sizes.nan_to_num(posinf=0.0, neginf=0.0).max()))
    return found


def _has_rounding(tensor: torch.Tensor) -> bool:
    return tensor.numel() > 0 and (tensor.dtype.is_floating_point or tensor.dtype.is_complex)


def without_noise(
    difference: torch.Tensor,
    name: str,
    gradients: Mapping[str, torch.Tensor],
    noise: Callable[[str], float],
) -> torch.Tensor:
    """Differences of a parameter, zero where all its gradients were noise.

    An optimizer that divides a gradient by its size, as Adam does, makes whole steps of noise.
    """
    mark = f" {name}.grad@"
    told = [
        gradient.abs() > noise(label)
        for label, gradient in gradients.items()
        if mark in label and gradient.shape == difference.shape
    ]
    if not told:
        return difference
    return difference * torch.stack(told).any(0)
