"""Regions of a program for all shapes that may run in parts, and the rewrites that put them there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from neaptide.errors import RewriteError
from neaptide.ir.edits.edit import Edited
from neaptide.ir.edits.with_sizes import with_sizes
from neaptide.ir.graph import Graph
from neaptide.ir.loops.maps import Binding
from neaptide.ir.registry import OpRegistry
from neaptide.symbolic.relations import SizeRelations
from neaptide.transform.fission.candidates import Candidate, candidates
from neaptide.transform.rewrite import Rewrite, replay
from neaptide.transform.rules import RULES
from neaptide.transform.rules.fission import by_chance, fission_by_shape
from neaptide.transform.rules.mean_to_sum import mean_to_sum

_NEAR_THE_END: Final = 8  # shapes at which every dim is so much below its end
_NO_SUFFIX: Final = 1  # means lie in regions of all kinds


@dataclass(frozen=True, slots=True)
class RegionInParts:
    """A region of a program that runs in parts of a length that calls choose."""

    told: str
    rewrites: tuple[Rewrite, ...]
    edited: Edited


def regions_in_parts(
    graph: Graph, registry: OpRegistry, holds: Callable[[Mapping[str, int]], bool], most: int
) -> Iterator[RegionInParts]:
    """Programs with one region in parts, those that make the most bytes in parts first.

    Regions are looked for at one large shape of the ranges. Whether a region may run in parts at all shapes is then decided by
    `fission_by_shape`; one that may not is left out. The program is for shapes that hold. O(regions x size).
    """
    shape = _telling_shape(graph, holds)
    if shape is None:
        return
    first = [*RULES["split_dropout"].find(graph, registry)]
    drawn = replay(graph, registry, first, RULES)
    found = candidates(with_sizes(drawn.graph, shape), registry, _NO_SUFFIX)
    means = sorted({node for one in found for node in one.means})
    first += [mean_to_sum(means)] if means else []
    summed = replay(graph, registry, first, RULES)
    made = 0
    for one in candidates(with_sizes(summed.graph, shape), registry):
        if made == most:
            return
        last = _in_parts(summed.graph, registry, one, shape)
        if last is not None:
            made += 1
            rewrites = (*first, last)
            yield RegionInParts(_told(one), rewrites, replay(graph, registry, rewrites, RULES))


def _in_parts(graph: Graph, registry: OpRegistry, region: Candidate, shape: Binding) -> Rewrite | None:
    """The rewrite that runs a region in parts; None where that does not go at all shapes."""
    lengths = (graph.values[value].shape[along.dim] for value, along in region.seeds.items())
    length = next((one for one in lengths if one.evaluate(shape) == region.length), None)
    if length is None or length.is_constant:
        return None
    nodes, step = region.members | region.views, _new_dim(graph)
    rewrite = fission_by_shape(graph, nodes, length=length, step=step, inputs=region.seeds)
    try:
        replay(graph, registry, [rewrite], RULES)
    except RewriteError:
        return None  # it was found at one shape, and does not have its parts at another
    return rewrite


def _new_dim(graph: Graph) -> str:
    taken, name = {dim.name for dim in graph.dims}, "part"
    while name in taken:
        name += "_"
    return name


def _telling_shape(graph: Graph, holds: Callable[[Mapping[str, int]], bool]) -> Binding | None:
    """A large shape at which few sizes are equal by chance."""
    near = [
        {dim.name: max((dim.high or dim.low) - less, dim.low) for dim in graph.dims}
        for less in range(_NEAR_THE_END)
    ]
    samples = SizeRelations(graph.dims, graph.relations).samples()
    shapes = [*near, *sorted(samples, key=lambda shape: -sum(shape.values()))]
    return next(iter(by_chance(graph, [shape for shape in shapes if holds(shape)])), None)


def _told(region: Candidate) -> str:
    name, dim = region.origin
    return f"{len(region.members)} operations ({region.kind}) along dim {dim} of %{name}"
