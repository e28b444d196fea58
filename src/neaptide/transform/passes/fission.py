"""Channel fission, fission of hidden channels, and windows: regions in parts, unrolled.

Output channels of a convolution or a product run in parts through all that works channel by channel, up to where they are
added up again, or are few enough to be joined (partial execution: Liberis and Lane, "Pex", arXiv 2211.17246): no halo, no
operation runs twice. Rows of an image run in parts through convolutions and pools, whose windows overlap (MCUNetV2: Lin et
al., NeurIPS 2021; fused-layer tiling: Alwani et al., MICRO 2016): rows in two parts are made twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from neaptide.analysis.folded import folded_values
from neaptide.errors import RewriteError
from neaptide.ir.edits.edit import Edited
from neaptide.ir.graph import Graph
from neaptide.ir.registry import OpRegistry, Trait
from neaptide.symbolic.size_expr import SizeExpr
from neaptide.transform.drafting import Drafting
from neaptide.transform.part_reading import AxisFinder, bytes_of_values, extent
from neaptide.transform.passes.estimate import bytes_in_parts, bytes_whole
from neaptide.transform.passes.region import Growth, Region, region_of
from neaptide.transform.passes.unroll import unroll
from neaptide.transform.rewrite import STATIC, Rewrite, Rule, Setting, Sizes

_LONGEST: Final = 24
"""Nodes of a region that is looked for."""

MOST_PARTS: Final = 64
_FAR: Final = 3
"""A region that takes less than this part of the widest node is far from the peak."""

_MARGIN: Final = 0.05
"""A longer region of rows is taken where it spares less than a shorter one by no more than this part of what it takes whole: what
is joined at its end is smaller, and passes inside its parts spare the rest."""

_NOWHERE: Final = 1 << 30
_ALL: Final = 0
"""As many parts as there are channels, but no more than `MOST_PARTS`."""

_Begin = Callable[[AxisFinder, "_Wide"], Iterator[Growth]]


def _rule(name: str, summary: str, begin: _Begin, parts: int, *, is_seeded: bool = False) -> Rule:
    """Fission of regions, alternatives, where parts take least; `begin` gives the first nodes, or values, of these."""

    def count(graph: Graph, found: Growth | Region) -> int:
        made = graph.nodes[next(iter(found.axes))].outputs[0]
        return min(MOST_PARTS, extent(graph, made, found.dims[made]))

    def find(graph: Graph, registry: OpRegistry) -> Iterator[Rewrite]:
        wide, best, margin = _Wide(graph), list[tuple[int, Region]](), _MARGIN if is_seeded else 0.0
        for growth in begin(AxisFinder(graph, registry), wide):
            many = parts or count(graph, growth)
            best += _best(graph, registry, growth, many, wide, margin) if many > 1 else []
        for _, region in _disjoint(best):
            inputs, settings = graph.nodes[region.nodes[0]].inputs, tuple[tuple[str, Setting], ...]()
            for value, dim in region.seeds.items():
                settings = (("dim", dim), ("value", inputs.index(value)))
            yield Rewrite(name, region.nodes, settings, keeps_bits=False)

    def apply(graph: Graph, registry: OpRegistry, rewrite: Rewrite, _: Sizes = STATIC) -> Edited:
        nodes, names = rewrite.nodes, ("dim", "value") if is_seeded else ()
        if not nodes or list(nodes) != sorted(set(nodes)) or tuple(dict(rewrite.settings)) != names:
            raise RewriteError(
                f"it must name nodes, ascending, and {'the settings dim and value' if names else 'no settings'}"
            )
        seed = _seed(graph, rewrite) if is_seeded else None
        region = region_of(AxisFinder(graph, registry), nodes, seed)
        if region is None:
            what = "parts of one value" if is_seeded else "a split of channels"
            raise RewriteError(f"its nodes are no region from {what} to one value that leaves it")
        drafting, many = Drafting(graph, registry), parts or count(graph, region)
        if many < 2:
            raise RewriteError("one channel cannot be split into parts")
        unroll(drafting, region, many)
        return drafting.edit.finish()

    return Rule(name=name, summary=summary, find=find, apply=apply, keeps_bits=False, are_alternatives=True)


def _splits_of_weights(trait: Trait) -> _Begin:
    """Operations of a trait that make parts of their results of parts of weights alone."""

    def begin(finder: AxisFinder, wide: _Wide) -> Iterator[Growth]:
        users = finder.graph.consumers()
        for node in finder.graph.nodes:
            spec = finder.registry.find(node.op)
            if spec is not None and spec.is_a(trait) and wide.follows(node.id):
                growth = Growth(finder, users, {})
                if growth.begin(node):
                    yield growth

    return begin


def _parts_of_values(parts: int) -> _Begin:
    """Values that are handed over in parts: rows of an image, positions of a sequence, heads, or channels."""

    def begin(finder: AxisFinder, wide: _Wide) -> Iterator[Growth]:
        users = finder.graph.consumers()
        seen: set[tuple[int, int]] = set()  # first node and dim of what was looked at
        for value in finder.graph.values:
            first = users[value.id][0] if users[value.id] else None
            if first is None or value.id in wide.weights or not wide.follows(first):
                continue
            for dim in _dims_in_parts(value.shape, parts):
                if (first, dim) not in seen:
                    seen.add((first, dim))
                    yield Growth(finder, users, {value.id: dim})

    return begin


def _dims_in_parts(shape: tuple[SizeExpr, ...], parts: int) -> Iterator[int]:
    """Dims along which a value may be handed over in parts: not the batch, nor the last of an image."""
    for dim in range(1, min(len(shape), 3)):
        if shape[dim].is_constant and shape[dim].constant_value() >= 2 * parts:
            yield dim


def _seed(graph: Graph, rewrite: Rewrite) -> tuple[int, int]:
    """The value that a rewrite hands over in parts, and its dim.

    Raises:
        RewriteError: it names none.
    """
    dim, slot = dict(rewrite.settings).values()
    if type(dim) is not int or type(slot) is not int:
        raise RewriteError("its settings dim and value are no numbers")
    first = graph.nodes[rewrite.nodes[0]]
    if not 0 <= slot < len(first.inputs):
        raise RewriteError(f"its first node has no operand {slot}")
    if not 0 <= dim < len(graph.values[first.inputs[slot]].shape):
        raise RewriteError(f"operand {slot} of its first node has no dim {dim}")
    return first.inputs[slot], dim


class _Wide:
    """Where a graph is widest: a region that is far from it is not worth a look."""

    def __init__(self, graph: Graph) -> None:
        self.weights = folded_values(graph)
        sizes = graph.remembered(bytes_of_values)
        found = [
            sum(sizes[value] for value in {*node.inputs, *node.outputs} - self.weights)
            for node in graph.nodes
        ]
        self.least = max(found, default=0) // _FAR
        self._next = [_NOWHERE] * (len(found) + 1)  # by node, the first wide one from there on
        for node in reversed(range(len(found))):
            self._next[node] = node if found[node] > self.least else self._next[node + 1]

    def follows(self, node: int) -> bool:
        """Whether a wide node is not far behind a node."""
        return self._next[node] - node <= 2 * _LONGEST


def _best(
    graph: Graph, registry: OpRegistry, growth: Growth, parts: int, wide: _Wide, margin: float = 0.0
) -> list[tuple[int, Region]]:
    """The end of a region at which parts take least, with the bytes that they spare; nothing where all take more."""
    best: tuple[int, Region] | None = None
    while len(growth.axes) < _LONGEST:
        region = growth.region
        if region is not None and len(region.nodes) > 1:
            whole = bytes_whole(graph, registry, region)
            try:
                gain = whole - (
                    bytes_in_parts(graph, registry, region, parts) if whole > wide.least else whole + 1
                )
            except RewriteError:
                break
            if gain >= 0 and (best is None or gain >= best[0] - margin * whole):
                best = gain, region
        following = growth.next_node()
        if following is None or not growth.absorb(graph.nodes[following]):
            break
    return [] if best is None else [best]


def _disjoint(found: list[tuple[int, Region]]) -> list[tuple[int, Region]]:
    """Regions of most gain that share no node, in program order."""
    taken: set[int] = set()
    kept = []
    for gain, region in sorted(found, key=lambda item: (-item[0], item[1].nodes)):
        if taken.isdisjoint(region.nodes):
            taken.update(region.nodes)
            kept.append((gain, region))
    return sorted(kept, key=lambda item: item[1].nodes)


CHANNEL_FISSION: Final = tuple(
    _rule(
        f"channel_fission_{parts or 'all'}",
        f"convolutions run in {parts or 'as many'} parts{'' if parts else ' as they have output channels'}",
        _splits_of_weights(Trait.CONVOLUTION),
        parts,
    )
    for parts in (2, 4, 8, _ALL)
)

MLP_FISSION: Final = _rule(
    "mlp_fission_4",
    "products run in 4 parts of their hidden channels",
    _splits_of_weights(Trait.CONTRACTION),
    4,
)


def window_fission(parts: int) -> Rule:
    """Fission into a number of parts of rows of an image, positions of a sequence, heads, or channels."""
    summary = f"operations run in {parts} parts of rows, positions or heads"
    return _rule(f"windows_{parts}", summary, _parts_of_values(parts), parts, is_seeded=True)


WINDOW_FISSION: Final = tuple(window_fission(parts) for parts in (2, 4))
