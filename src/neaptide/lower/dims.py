"""The dims of a program, read off the shapes of its arguments at each call."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

import torch

from neaptide.errors import UsageError
from neaptide.ir.graph import Graph
from neaptide.ir.loops.maps import Binding, PartDim, chosen_dims, part_dim
from neaptide.ir.values import Value
from neaptide.symbolic.dims import bound_dims, bound_relations

_NO_DIMS: Final[Binding] = MappingProxyType({})
_SHAPES_REMEMBERED: Final = 4096


class DimReader:
    """Reads the values of a graph's dims off the shapes of its arguments, and checks all shapes against them.

    Shapes that were seen are remembered: then a call costs one look-up. Of `dims` and `chosen` the latter say how long the
    parts of loops are, and no input tells them: who calls the program chooses them.
    """

    def __init__(self, graph: Graph) -> None:
        # What nothing uses is not handed over.
        used = {v for node in graph.nodes for v in node.inputs} | set(graph.outputs)
        inputs = [(position, graph.values[v]) for position, v in enumerate(graph.inputs) if v in used]
        self._inputs = [(position, value) for position, value in inputs if _has_dims(value)]
        positions = {value.id: position for position, value in self._inputs}
        told = list(told_dims([value for _, value in self._inputs], ()))
        self._told = [(positions[value.id], axis, dim) for value, axis, dim in told]
        self.dims = tuple(dim.dim for _, _, dim in self._told)
        self._declared, self._relations = graph.dims, graph.relations
        self.chosen = tuple(dim for dim in chosen_dims(graph) if dim not in self.dims)
        self._seen = lru_cache(_SHAPES_REMEMBERED)(self._read)

    def read(self, args: Sequence[Any]) -> Binding:
        """Values of the dims. O(symbolic inputs) for shapes that were seen, else O(extents of these inputs)."""
        if not self._inputs:
            return _NO_DIMS
        return self._seen(tuple([args[position].shape for position, _ in self._inputs]))

    def _read(self, shapes: Sequence[torch.Size]) -> Binding:
        by_position = dict(zip((position for position, _ in self._inputs), shapes, strict=True))
        for position, value in self._inputs:
            if len(by_position[position]) != len(value.shape):
                raise _misfit(value, by_position[position], "it has another number of axes")
        found: dict[str, int] = {}
        for position, axis, told in self._told:
            length = by_position[position][axis] - told.rest.evaluate(found)
            scale = told.scale.evaluate(found)
            found[told.dim] = length // scale if scale else 0
        for position, value in self._inputs:
            for axis, (extent, length) in enumerate(zip(value.shape, by_position[position], strict=True)):
                if extent.dims() <= found.keys() and extent.evaluate(found) != length:
                    sizes = ", ".join(f"{dim} = {size}" for dim, size in sorted(found.items()))
                    raise _misfit(
                        value, by_position[position], f"axis {axis} is {extent} long, where {sizes}"
                    )
        bound_dims(self._declared, found)
        bound_relations(self._relations, found)
        return MappingProxyType(found)


def told_dims(values: Iterable[Value], known: Collection[str]) -> Iterator[tuple[Value, int, PartDim]]:
    """One extent, by value and axis, for each dim that values tell, which may use dims that are known or told before.

    Those that are a dim all by themselves come first.
    """
    seen = set(known)
    extents = [(value, axis, extent) for value in values for axis, extent in enumerate(value.shape)]
    extents = [found for found in extents if not found[-1].is_constant]
    for is_plain in (True, False):
        count = -1
        while count < len(seen):  # an extent may tell a dim once another one is known
            count = len(seen)
            for value, axis, extent in extents:
                told = part_dim(extent, frozenset(seen))
                if told is None or told.dim in seen or (is_plain and str(extent) != told.dim):
                    continue
                if (told.scale.dims() | told.rest.dims()) <= seen:
                    seen.add(told.dim)
                    yield value, axis, told


def _has_dims(value: Value) -> bool:
    return not all(extent.is_constant for extent in value.shape)


def _misfit(value: Value, shape: torch.Size, why: str) -> UsageError:
    expected = ", ".join(map(str, value.shape))
    return UsageError(
        f"{value.name} has the shape {list(shape)}, and the program takes [{expected}]",
        why=why,
        next_step="pass arguments of shapes that belong together, or capture the step again with these",
    )
