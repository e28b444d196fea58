"""What the sizes of a call must agree on with a capture whose dims may vary: facts like all others of a signature."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from neaptide.errors import SymbolicError
from neaptide.frontends.dims.dynamic_dims import SMALLEST, DynamicDim, axes_inwards, dense_strides, examples
from neaptide.frontends.guards.place_facts import Fact
from neaptide.frontends.guards.tensor_facts import Geometry, geometry
from neaptide.frontends.objects.batch_objects import leaves_of
from neaptide.frontends.recording.traced_sizes import SizeFacts
from neaptide.symbolic.size_expr import SizeExpr


class SizeGuard:
    """Reads the sizes of some dims off the arguments of a call, and says whether the programs, that `held` for some, hold."""

    def __init__(
        self,
        dims: Sequence[DynamicDim],
        held: Sequence[SizeFacts],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> None:
        leaves = leaves_of((args, dict(kwargs)))
        self._dims = dims
        self._held = tuple(held)
        self._names: dict[int, dict[int, str]] = {}
        for dim in dims:
            for position, axis in dim.places:
                self._names.setdefault(position, {})[axis] = dim.name
        self._axes = {position: axes_inwards(leaves[position]) for position in self._names}
        self._strides = {
            position: tuple(map(str, dense_strides(self._shape(position, leaves[position].shape), axes)))
            for position, axes in self._axes.items()
        }
        self._known: dict[tuple[int, ...], tuple[Fact, ...]] = {}

    def _shape(self, position: int, shape: Sequence[int]) -> list[SizeExpr]:
        names = self._names[position]
        return [
            SizeExpr.dim(names[axis]) if axis in names else SizeExpr.const(n) for axis, n in enumerate(shape)
        ]

    @property
    def examples(self) -> dict[str, int]:
        """By dim, the size that the programs were traced with."""
        return examples(self._dims)

    def binding(self, leaves: Sequence[Any]) -> dict[str, int]:
        """The size of each dim in a call; none for a dim whose tensor has fewer dims, or is none."""
        found = {}
        for dim in self._dims:
            position, axis = dim.places[0]
            leaf = leaves[position] if position < len(leaves) else None
            if isinstance(leaf, torch.Tensor) and axis < leaf.dim():
                found[dim.name] = leaf.shape[axis]
        return found

    def geometry(self, position: int, tensor: torch.Tensor, binding: Mapping[str, int]) -> Any:
        """The geometry of a leaf, with the names of dims in place of sizes, as long as it is made alike."""
        own: Geometry = geometry(tensor)
        names = self._names.get(position)
        if names is None or tensor.dim() != len(self._axes[position]):
            return own
        shape = tuple(
            names[axis] if axis in names and binding.get(names[axis]) == n else n
            for axis, n in enumerate(tensor.shape)
        )
        dense = dense_strides(tensor.shape, self._axes[position])
        is_dense = own.strides and all(
            n <= 1 or a == b for n, a, b in zip(tensor.shape, own.strides, dense, strict=True)
        )
        strides = self._strides[position] if is_dense else own.strides
        return own._replace(shape=shape, strides=strides)

    def holds(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        """Whether all programs hold for the sizes of a call that has the dims."""
        binding = self.binding(leaves_of((args, dict(kwargs))))
        return all(
            held.hold(binding)
            and all(_evaluated(size, binding) == binding[name] for name, size in held.asked.items())
            for held in self._held
        )

    def single(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> frozenset[str]:
        """Names of the dims that have one element in a call, where a program does not hold for one."""
        binding = self.binding(leaves_of((args, dict(kwargs))))
        ranges = [{dim.name: dim for dim in held.dims} for held in self._held]
        return frozenset(
            name
            for name, size in binding.items()
            if size == SMALLEST and any(name in held and size not in held[name] for held in ranges)
        )

    def facts(self, binding: Mapping[str, int]) -> tuple[Fact, ...]:
        """One for each dim and each thing that ties dims together; alike for all calls that the programs hold for."""
        key = tuple(binding.get(dim.name, -1) for dim in self._dims)
        if key not in self._known:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[key] = tuple(self._read(binding))
        return self._known[key]

    def _read(self, binding: Mapping[str, int]) -> Iterator[Fact]:
        for held in self._held:
            ranges = {dim.name: dim for dim in held.dims}
            for name, size in held.asked.items():
                found = binding.get(name)
                if size == SizeExpr.dim(name):
                    dim = ranges[name]
                    held_for = f"{dim.low} to {dim.high}" if dim.high is not None else f"{dim.low} or more"
                    yield f"the size {name}", held_for if found is not None and found in dim else found
                else:
                    yield f"the size {name}", str(size) if found == _evaluated(size, binding) else found
            for relation in held.relations:
                left, right = _evaluated(relation.left, binding), _evaluated(relation.right, binding)
                yield f"that {relation}", left is not None and left == right
            for condition in held.conditions:
                known = condition.dims() <= binding.keys()
                yield f"that {condition}", known and condition.holds(binding)


_REMEMBERED = 1024  # shapes


def _evaluated(size: SizeExpr, binding: Mapping[str, int]) -> int | None:
    try:
        return size.evaluate(binding)
    except SymbolicError:  # a dim is missing, or divides by 0
        return None
