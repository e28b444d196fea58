"""The dims of a program, read off the shapes of its arguments at each call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

import torch

from neaptide.errors import UsageError
from neaptide.ir.graph import Graph
from neaptide.ir.loop_maps import Binding, PartDim, chosen_dims, part_dim
from neaptide.ir.values import Value
from neaptide.symbolic.dims import bound_dims, bound_relations

_NO_DIMS: Final[Binding] = MappingProxyType({})
_SHAPES_REMEMBERED: Final = 4096


@dataclass(frozen=True, slots=True)
class _Told:
    """A dim that follows from an extent of an argument."""

    position: int
    axis: int
    dim: PartDim


class DimReader:
    """Reads the values of a graph's dims off the shapes of its arguments, and checks all shapes against them.

    Shapes that were seen are remembered: then a call costs one look-up.

    Attributes:
        chosen: that say how long the parts of loops are, and that no input tells: who calls the program chooses them.
    """

    def __init__(self, graph: Graph) -> None:
        # What nothing uses is not handed over.
        used = {v for node in graph.nodes for v in node.inputs} | set(graph.outputs)
        inputs = [(position, graph.values[v]) for position, v in enumerate(graph.inputs) if v in used]
        self._inputs = [(position, value) for position, value in inputs if _has_dims(value)]
        self._told = tuple(_told(self._inputs))
        self.dims = tuple(told.dim.dim for told in self._told)
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
        for told in self._told:
            length = by_position[told.position][told.axis] - told.dim.rest.evaluate(found)
            scale = told.dim.scale.evaluate(found)
            found[told.dim.dim] = length // scale if scale else 0
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


def _told(inputs: Iterable[tuple[int, Value]]) -> Iterable[_Told]:
    """One extent for each dim: those that are a dim all by themselves first, the others by what is known then."""
    extents = [
        (position, axis, extent)
        for position, value in inputs
        for axis, extent in enumerate(value.shape)
        if not extent.is_constant
    ]
    known: set[str] = set()
    for is_plain in (True, False):
        while True:
            found = next(
                (
                    _Told(position, axis, dim)
                    for position, axis, extent in extents
                    if (dim := part_dim(extent, frozenset(known))) is not None
                    and dim.dim not in known
                    and (dim.scale.dims() | dim.rest.dims()) <= known
                    and (not is_plain or str(extent) == dim.dim)
                ),
                None,
            )
            if found is None:
                break
            known.add(found.dim.dim)
            yield found


def _has_dims(value: Value) -> bool:
    return not all(extent.is_constant for extent in value.shape)


def _misfit(value: Value, shape: torch.Size, why: str) -> UsageError:
    expected = ", ".join(map(str, value.shape))
    return UsageError(
        f"{value.name} has the shape {list(shape)}, and the program takes [{expected}]",
        why=why,
        next_step="pass arguments of shapes that belong together, or capture the step again with these",
    )


def parameters(dims: Mapping[str, str]) -> str:
    """The dims of a function as the end of its list of parameters; `dims` are their variables."""
    return f", *, {', '.join(dims.values())}" if dims else ""
