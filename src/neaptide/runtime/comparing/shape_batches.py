"""Batches of other shapes, made of the one batch that a factory has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from neaptide.frontends.dims.dynamic_dims import DynamicDim, axes_inwards, dense_strides
from neaptide.frontends.objects.batch_objects import flatten
from neaptide.runtime.comparing.contestants import Factory
from neaptide.runtime.steps.arguments import check_made


@dataclass(frozen=True)
class FactoryOfShape:
    """A factory whose batch has other sizes: entries are left out at the end, or come again from the beginning."""

    factory: Factory
    sizes: tuple[tuple[int, int, int], ...]  # by leaf of the batch and its dim, the size

    @staticmethod
    def of(factory: Factory, dims: Sequence[DynamicDim], shape: Mapping[str, int]) -> FactoryOfShape:
        """A factory of one of the shapes of some dims; `shape` has a size for each of them."""
        sizes = tuple((leaf, axis, shape[dim.name]) for dim in dims for leaf, axis in dim.places)
        return FactoryOfShape(factory, sizes)

    def __call__(self) -> tuple[Any, Any]:
        """The step, and the batch of these sizes."""
        step, batch = check_made(self.factory(), self.factory)
        leaves, spec = flatten(batch)
        for leaf, axis, size in self.sizes:
            leaves[leaf] = _resized(leaves[leaf], axis, size)
        return step, pytree.tree_unflatten(leaves, spec)


def _resized(tensor: torch.Tensor, axis: int, size: int) -> torch.Tensor:
    """A tensor with another size of one dim, its axes as near to each other as they were. O(size)."""
    if tensor.shape[axis] == size:
        return tensor
    entries = torch.arange(size, device=tensor.device) % tensor.shape[axis]
    found = tensor.detach().index_select(axis, entries)
    strides = dense_strides(found.shape, axes_inwards(tensor))
    made = torch.empty_strided(found.shape, strides, dtype=tensor.dtype, device=tensor.device)
    return made.copy_(found).requires_grad_(tensor.requires_grad)
