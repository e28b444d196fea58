"""Fission of a graph whose dims vary: how long a part is, each call chooses for its shape.

The length of a part is a dim of its own, which no argument tells. So the number of parts is an expression in the dims of
the graph and in this one, and one loop runs in one part or in many.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from neaptide.errors import RewriteError
from neaptide.ir.axes import Along
from neaptide.ir.edit import Edited
from neaptide.ir.graph import Graph
from neaptide.ir.loop_maps import Binding
from neaptide.ir.registry import OpRegistry
from neaptide.symbolic.dims import Dim
from neaptide.symbolic.parsing import parse_size_expr
from neaptide.symbolic.relations import SizeRelations
from neaptide.symbolic.size_expr import SizeExpr
from neaptide.transform.fission.loop import extract_loop
from neaptide.transform.fission.split import Split
from neaptide.transform.rewrite import Rewrite, Setting
from neaptide.transform.rules.fission import check_alike, followed
from neaptide.transform.rules.handed_values import RegionRule, region_rewrite, seeds_of, settings_of

_RUN = 3
_SHAPES: Final = 3  # at which rows of the op table are asked; they must agree


@dataclass(frozen=True, slots=True)
class FissionByShape(RegionRule):
    """Runs the nodes of a rewrite as one loop whose number of parts is chosen at each call.

    `fission_by_shape` makes such rewrites.

    Settings: `length` of the axis, as an expression in dims; `step`, the name of the dim that it declares: elements of the
    axis in a part, from 1 to the length; `inputs` as runs of (node, place, dim) for each value that is handed to the region
    in parts, as `Fission` has them.

    What carries the axis is asked at a few shapes, and must be the same at all of them. That each part has the extents and
    arguments that it needs is then checked as expressions, for all shapes.
    """

    name: str = "fission_by_shape"
    summary: str = "a region runs in as many parts as the shape of a call needs"

    def apply(self, graph: Graph, registry: OpRegistry, rewrite: Rewrite) -> Edited:
        """As `Rule.apply`. O(size of the graph)."""
        settings = settings_of(rewrite, "inputs", "length", "step")
        length, step = _length(graph, settings["length"]), _new_dim(graph, settings["step"])
        seeds = seeds_of(graph, rewrite, _RUN, lambda _, dim: Along(dim))
        store = SizeRelations(graph.dims, graph.relations)
        shapes = _telling(graph, store, length)[:_SHAPES]
        if not shapes:
            raise RewriteError(f"an axis of {length} has no two elements at any shape")
        carried = followed(graph, registry, rewrite.nodes, seeds, length, shapes[0])
        for shape in shapes[1:]:
            other = followed(graph, registry, rewrite.nodes, seeds, length, shape)
            check_alike(carried, other, "at another shape")
        sizes = {node: line.axis.sizes for node, line in carried.members.items()}
        split = Split(length, SizeExpr.dim(step), carried.axes, carried.sums, sizes)
        high = store.bound(length).high
        return extract_loop(graph, registry, rewrite.nodes, split, Dim(step, 1, high))


def fission_by_shape(
    graph: Graph, nodes: Collection[int], *, length: SizeExpr, step: str, inputs: Mapping[int, Along]
) -> Rewrite:
    """The rewrite that runs some nodes of a graph in parts of a length that each call chooses: `step` names the dim that says how
    long, and that no dim of the graph is called; `inputs` as of `region_rewrite`.
    """
    where = {value: (along.dim,) for value, along in inputs.items()}
    return region_rewrite(FissionByShape().name, graph, nodes, where, length=str(length), step=step)


def by_chance(graph: Graph, shapes: Sequence[Binding]) -> list[Binding]:
    """Some shapes, those first at which fewest sizes are equal to others of a graph by chance."""
    numbers = {e.constant_value() for v in graph.values for e in v.shape if e.is_constant}

    def chances(shape: Binding) -> int:
        sizes = list(shape.values())
        return sum(size in numbers for size in sizes) + len(sizes) - len(set(sizes))

    return sorted(shapes, key=chances)


def _length(graph: Graph, found: Setting) -> SizeExpr:
    if not isinstance(found, str):
        raise RewriteError("its setting length is no expression in dims")
    length = parse_size_expr(found)
    if unknown := sorted(length.dims() - {dim.name for dim in graph.dims}):
        raise RewriteError(f"the graph declares no dim {unknown[0]}")
    return length


def _new_dim(graph: Graph, found: Setting) -> str:
    if not isinstance(found, str):
        raise RewriteError("its setting step names no dim")
    if found in {dim.name for dim in graph.dims}:
        raise RewriteError(f"the graph has a dim {found} already")
    SizeExpr.dim(found)
    return found


def _telling(graph: Graph, store: SizeRelations, length: SizeExpr) -> list[Binding]:
    """Sample shapes with at least two elements of an axis, those first at which fewest extents are equal by chance."""
    return by_chance(graph, [shape for shape in store.samples() if length.evaluate(shape) > 1])
