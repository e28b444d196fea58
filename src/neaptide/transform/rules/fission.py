"""Fission: a region of the graph runs in parts along an axis, the last of them maybe shorter.

Fission of MAGIS (Chen et al., ASPLOS 2024), as a loop instead of an unrolled graph, for parts of any length.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from neaptide.analysis.axes.follow import Carried, follow
from neaptide.errors import RewriteError
from neaptide.ir.axes import Along, Need
from neaptide.ir.edit import Edited
from neaptide.ir.graph import Graph
from neaptide.ir.loop_maps import Binding
from neaptide.ir.registry import OpRegistry
from neaptide.ir.with_sizes import with_sizes
from neaptide.symbolic.size_expr import SizeExpr
from neaptide.transform.fission.loop import extract_loop
from neaptide.transform.fission.split import Split
from neaptide.transform.rewrite import STATIC, Rewrite, Sizes
from neaptide.transform.rules.handed_values import (
    RegionRule,
    number_of,
    region_rewrite,
    seeds_of,
    settings_of,
)

_RUN = 4
_WORDS = {
    Need.COMPLETE: "needs a sum over all parts before they are there",
    Need.MEAN: "takes a mean: that of a part is none of the whole (`mean_to_sum` makes it a sum)",
    Need.ADDEND: "adds an operand that each part would add once more",
    Need.RANDOM: "draws random numbers: in parts it would draw others",
    Need.HALO: "needs the edge of the parts next to its own",
}


@dataclass(frozen=True, slots=True)
class Fission(RegionRule):
    """Runs the nodes of a rewrite as one loop. `fission` makes such rewrites.

    Settings: `length` of the axis and number of `parts`; `inputs` as runs of (node, place, dim, outer) for each value that
    is handed to the region in parts. Where the axis lies in all other values, and which results are sums, follows from the op table.

    In the body of a loop whose last part is shorter, `length` and `parts` are those in a full part. An axis that the loop
    around has cut is shorter in the last part, and makes fewer parts there, of the same length.
    """

    name: str = "fission"
    summary: str = "a region runs in parts"
    sizes: Sizes = STATIC

    def under(self, sizes: Sizes) -> Fission:
        """As `SizedRule.under`."""
        return replace(self, sizes=sizes)

    def apply(self, graph: Graph, registry: OpRegistry, rewrite: Rewrite) -> Edited:
        """As `Rule.apply`. O(size of the graph)."""
        settings = settings_of(rewrite, "inputs", "length", "parts")
        length, parts = number_of(settings, "length"), number_of(settings, "parts")
        if not 2 <= parts <= length:
            raise RewriteError(f"an axis of {length} cannot be split into {parts} parts")
        seeds = seeds_of(
            graph, rewrite, _RUN, lambda _, dim, outer: Along(dim, outer) if outer >= 1 else None
        )
        split = _split_of(graph, registry, rewrite.nodes, seeds, length, parts, self.sizes)
        return extract_loop(graph, registry, rewrite.nodes, split)


def fission(
    graph: Graph, nodes: Collection[int], *, length: int, parts: int, inputs: Mapping[int, Along]
) -> Rewrite:
    """The rewrite that runs some nodes of a graph in parts along an axis of a length: `parts` at most, each as long as the first
    but for the last, which may be shorter; `inputs` as of `region_rewrite`.
    """
    where = {value: (along.dim, along.outer) for value, along in inputs.items()}
    return region_rewrite(Fission().name, graph, nodes, where, length=length, parts=parts)


def _split_of(
    graph: Graph,
    registry: OpRegistry,
    nodes: Collection[int],
    seeds: Mapping[int, Along],
    length: int,
    parts: int,
    sizes: Sizes,
) -> Split:
    """What rows of the op table say of a region in parts."""
    extent, step = _length(graph, seeds, length, sizes), -(-length // parts)
    carried = followed(graph, registry, nodes, seeds, extent, sizes[0])
    for other in sizes[1:]:
        if extent.evaluate(other) > step:  # what is not cut there is what it was
            other_carried = followed(graph, registry, nodes, seeds, extent, other)
            check_alike(carried, other_carried, "in the shorter last part of the loop around it")
    sizes_of = {node: line.axis.sizes for node, line in carried.members.items()}
    return Split(extent, step, carried.axes, carried.sums, sizes_of)


def _length(graph: Graph, seeds: Mapping[int, Along], length: int, sizes: Sizes) -> SizeExpr:
    """The length of the axis, whatever the part is."""
    for value, along in seeds.items():
        shape = graph.values[value].shape
        if 0 <= along.dim < len(shape) and not shape[along.dim].is_constant:
            extent = shape[along.dim]
            elements = extent.evaluate(sizes[0]) // length
            found = extent // elements if elements else extent
            if found * elements == extent and found.evaluate(sizes[0]) == length:
                return found
            raise RewriteError(
                f"an axis of {length} is not as many times in dim {along.dim} of"
                f" %{graph.values[value].name} in each part"
            )
    return SizeExpr.const(length)


def check_alike(full: Carried, other: Carried, where: str) -> None:
    """Refuse a region that runs in parts in another way somewhere; `where` says where."""
    dims, others = ({v: a.dim for v, a in found.axes.items()} for found in (full, other))
    if (dims, full.sums, full.members.keys()) != (others, other.sums, other.members.keys()):
        raise RewriteError(f"{where}, the axis lies elsewhere")


def followed(
    graph: Graph,
    registry: OpRegistry,
    nodes: Collection[int],
    seeds: Mapping[int, Along],
    length: SizeExpr,
    binding: Binding,
) -> Carried:
    """What rows of the op table say of a region in parts, under some sizes."""
    carried = follow(with_sizes(graph, binding), registry, seeds, length.evaluate(binding), nodes)
    if carried.barriers:
        first = carried.barriers[0]
        node = graph.nodes[first.node]
        raise RewriteError(f"{node.op} {first.reason}", where=node.source.location or None)
    if carried.conditions:
        first_condition = carried.conditions[0]
        node = graph.nodes[first_condition.node]
        raise RewriteError(f"{node.op} {_WORDS[first_condition.need]}", where=node.source.location or None)
    if idle := carried.untouched.intersection(nodes):
        node = graph.nodes[min(idle)]
        raise RewriteError(
            f"{node.op} does not depend on the axis, and would run whole in each part",
            where=node.source.location or None,
        )
    if (outside := _used_outside(graph, nodes, carried.private)) is not None:
        raise RewriteError(
            f"%{graph.values[outside].name} means something within its part only, and leaves the region"
        )
    return carried


def _used_outside(graph: Graph, nodes: Collection[int], values: frozenset[int]) -> int | None:
    """The first of some values that a node outside a region needs, or that the graph returns."""
    inside = frozenset(nodes)
    needed = {v for node in graph.nodes if node.id not in inside for v in node.inputs} | {*graph.outputs}
    return min(values & needed, default=None)
