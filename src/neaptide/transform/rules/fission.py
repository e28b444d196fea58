"""Fission: a region of the graph runs in parts along an axis, the last of them maybe shorter.

Fission of MAGIS (Chen et al., ASPLOS 2024), as a loop instead of an unrolled graph, for parts of any length.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from neaptide.analysis.axes.carried import Carried
from neaptide.analysis.axes.follow import follow
from neaptide.errors import RewriteError
from neaptide.ir.axes import Along, Need
from neaptide.ir.edit import Edited
from neaptide.ir.graph import Graph
from neaptide.ir.loop_maps import Binding
from neaptide.ir.registry import OpRegistry
from neaptide.ir.with_sizes import is_static, with_sizes
from neaptide.symbolic.size_expr import SizeExpr
from neaptide.transform.fission.candidates import candidates
from neaptide.transform.fission.loop import extract_loop
from neaptide.transform.fission.split import Split
from neaptide.transform.rewrite import STATIC, Refusal, Rewrite, Setting, Sizes
from neaptide.transform.rules.handed_values import number_setting, operand_at, places_of, runs_of

_NAMES = ("inputs", "length", "parts")
_RUN = 4
_FIRST_MEANS = "it takes means: those of parts are none of the whole (`mean_as_sum` makes them sums)"
_FIRST_VIEWS = "a view that is handed to it has parts in several places (`made_again` makes it inside)"
_WORDS = {
    Need.COMPLETE: "needs a sum over all parts before they are there",
    Need.MEAN: "takes a mean: that of a part is none of the whole (`mean_as_sum` makes it a sum)",
    Need.ADDEND: "adds an operand that each part would add once more",
    Need.RANDOM: "draws random numbers: in parts it would draw others",
    Need.HALO: "needs the edge of the parts next to its own",
}


@dataclass(frozen=True, slots=True)
class Fission:
    """Runs the nodes of a rewrite as one loop. `fission` makes such rewrites.

    Settings: `length` of the axis and number of `parts`; `inputs` as runs of (node, place, dim, outer) for each value that
    is handed to the region in parts. A node is its position in the rewrite's nodes; place -1 is its first input, -2 its
    second. Where the axis lies in all other values, and which results are sums, follows from the op table.

    In the body of a loop whose last part is shorter, `length` and `parts` are those in a full part. An axis that the loop
    around has cut is shorter in the last part, and makes fewer parts there, of the same length.

    Attributes:
        sizes: that graphs run under.
    """

    name: str = "fission"
    keeps_bits: bool = False
    each_node: bool = False
    are_alternatives: bool = True
    summary: str = "a region runs in parts"
    sizes: Sizes = STATIC

    def under(self, sizes: Sizes) -> Fission:
        """As `SizedRule.under`."""
        return replace(self, sizes=sizes)

    def find(
        self, graph: Graph, registry: OpRegistry, near: Collection[int] | None = None
    ) -> Iterator[Rewrite | Refusal]:
        """As `Rule.find`: the regions of `transform.fission.candidates`, each in two parts. Where more are worth it is a
        question of prices, as is which regions. O(suffixes x axes x nodes).

        Amplifiers are not among them: their twins must make again what they need first.
        """
        full = with_sizes(graph, self.sizes[0])
        for region in candidates(full, registry) if is_static(full) else ():
            if near is not None and region.members.isdisjoint(near):
                continue
            members = tuple(sorted(region.members))
            reason = _FIRST_MEANS if region.means else _FIRST_VIEWS if region.own is not None else None
            made = fission(graph, members, length=region.length, parts=2, inputs=region.seeds)
            if reason is None:
                try:
                    self.apply(graph, registry, made)
                except RewriteError as error:
                    reason = error.what
            yield made if reason is None else Refusal(self.name, members, reason)

    def apply(self, graph: Graph, registry: OpRegistry, rewrite: Rewrite) -> Edited:
        """As `Rule.apply`. O(size of the graph)."""
        settings = dict(rewrite.settings)
        if tuple(settings) != _NAMES or len(set(rewrite.nodes)) < len(rewrite.nodes) or not rewrite.nodes:
            raise RewriteError(f"it must name nodes, each once, and the settings {', '.join(_NAMES)}")
        length, parts = number_setting(settings, "length"), number_setting(settings, "parts")
        if not 2 <= parts <= length:
            raise RewriteError(f"an axis of {length} cannot be split into {parts} parts")
        seeds: dict[int, Along] = {}
        for node, place, dim, outer in runs_of(settings["inputs"], _RUN):
            value = operand_at(graph, rewrite, node, place)
            if outer < 1 or seeds.setdefault(value, Along(dim, outer)) != Along(dim, outer):
                raise RewriteError(
                    f"%{graph.values[value].name} is handed over along two axes, or along none"
                )
        split = _split_of(graph, registry, rewrite.nodes, seeds, length, parts, self.sizes)
        return extract_loop(graph, registry, rewrite.nodes, split)


def fission(
    graph: Graph, nodes: Collection[int], *, length: int, parts: int, inputs: Mapping[int, Along]
) -> Rewrite:
    """The rewrite that runs some nodes of a graph in parts.

    Args:
        graph: in which the nodes are.
        nodes: the region.
        length: of the axis.
        parts: how many at most; each is as long as the first but for the last, which may be shorter.
        inputs: by value that is handed to the region in parts, where the axis lies in it; others are handed over whole.
    """
    members = tuple(sorted(nodes))
    places = places_of(graph, members)
    runs = [(*places[value], along.dim, along.outer) for value, along in inputs.items() if value in places]
    settings: tuple[tuple[str, Setting], ...] = (
        ("inputs", tuple(number for run in sorted(runs) for number in run)),
        ("length", length),
        ("parts", parts),
    )
    return Rewrite(Fission().name, members, settings, keeps_bits=False)


def _split_of(
    graph: Graph,
    registry: OpRegistry,
    nodes: Collection[int],
    seeds: Mapping[int, Along],
    length: int,
    parts: int,
    sizes: Sizes,
) -> Split:
    """What rows of the op table say of a region in parts.

    Raises:
        RewriteError: a node of the region cannot run in parts, with the reason.
    """
    extent, step = _length(graph, seeds, length, sizes), -(-length // parts)
    carried = followed(graph, registry, nodes, seeds, extent, sizes[0])
    for other in sizes[1:]:
        if extent.evaluate(other) > step:  # what is not cut there is what it was
            other_carried = followed(graph, registry, nodes, seeds, extent, other)
            check_alike(carried, other_carried, "in the shorter last part of the loop around it")
    sizes_of = {node: line.axis.sizes for node, line in carried.members.items()}
    return Split(extent, step, carried.axes, carried.sums, sizes_of)


def _length(graph: Graph, seeds: Mapping[int, Along], length: int, sizes: Sizes) -> SizeExpr:
    """The length of the axis, whatever the part is.

    Raises:
        RewriteError: it does not follow from the part.
    """
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
    """Refuse a region that runs in parts in another way somewhere; `where` says where.

    Raises:
        RewriteError: it does.
    """
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
    """What rows of the op table say of a region in parts, under some sizes.

    Raises:
        RewriteError: a node of the region cannot run in parts, with the reason.
    """
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
