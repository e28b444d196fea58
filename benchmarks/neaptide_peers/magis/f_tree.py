"""The F-tree of a graph: nested regions that may run in parts, as data. The graph is not rewritten to make or to search it.

Chen et al., MAGIS (ASPLOS 2024), algorithm 1 and section 4.2. Of each axis of the graph (a component of the D-graph) the
nodes that it runs through have a dominator tree, whose root is what the step is called with. Running what a node strictly
dominates in parts frees bytes in proportion to its *heat*: the bytes that it makes and that are there at the peak. What is
handed to it must be kept until the last part, which costs bytes where these are not there at the peak anyway. The
difference is the *score* of the node. Scores are sorted into levels, and the innermost nodes of each level make regions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from neaptide.analysis.axes.follow import follow
from neaptide.analysis.axes.whole_graph import GraphAxis, graph_axes
from neaptide.analysis.dominators import immediate_dominators
from neaptide.analysis.sizes import evaluate_storage_bytes
from neaptide.errors import RewriteError
from neaptide.ir.axes import Along
from neaptide.ir.graph import Graph
from neaptide.ir.registry import OpRegistry
from neaptide.transform.fission.candidates import RegionFinder
from neaptide.transform.fission.members import convex_members
from neaptide.transform.fission.region import find_region

LEVELS: Final = 4
MOST_REGIONS: Final = 40
_OPTIMIZER: Final = "optimizer"
_FIRST_PARTS: Final = 2  # that scores are counted for
_LEAST_LEFT: Final = 0.5  # of the nodes of a region: with fewer it is another one, and its score says nothing


@dataclass(frozen=True, slots=True)
class TreeRegion:
    """A region of the tree.

    Attributes:
        members: nodes.
        seeds: values that are handed to it in parts, and where the axis lies in them.
        axis: number of the axis among those of the graph.
        length: of the axis.
        cut: values that the region makes or is handed in parts.
        score: bytes that two parts would free at the peak, about.
        parent: index of the smallest region around it, -1 where there is none.
    """

    members: frozenset[int]
    seeds: Mapping[int, Along]
    axis: int
    length: int
    cut: frozenset[int]
    score: float
    parent: int = -1


@dataclass(frozen=True, slots=True)
class FTree:
    """Regions, those around others first.

    Attributes:
        regions: by index.
        children: by index, the regions directly inside.
    """

    regions: tuple[TreeRegion, ...]
    children: tuple[tuple[int, ...], ...]

    def around(self, index: int) -> Iterator[int]:
        """Regions around one, innermost first."""
        parent = self.regions[index].parent
        while parent >= 0:
            yield parent
            parent = self.regions[parent].parent

    def inside(self, index: int) -> Iterator[int]:
        """Regions inside one, at any depth."""
        for child in self.children[index]:
            yield child
            yield from self.inside(child)


def f_tree(
    graph: Graph,
    registry: OpRegistry,
    at_peak: Collection[int],
    *,
    levels: int = LEVELS,
    most: int = MOST_REGIONS,
    leaving_out: bool = False,
    small_axes: float = 0.0,
) -> FTree:
    """The F-tree of a static graph. O(nodes^2) at most for an axis.

    Args:
        graph: a training step, or any graph; updates of an optimizer are left out.
        registry: what its operations mean.
        at_peak: storages that are there at the peak.
        levels: that scores are sorted into.
        most: regions, those of the highest scores.
        leaving_out: a region whose nodes cannot all run in parts is looked at without those that stand in the way. MAGIS
            has no such nodes: no random masks, no counts of labels, no views.
        small_axes: axes through at most this share of the nodes of the largest axis have no regions. In the release that is
            a half, so that it knows the batch alone.
    """
    sizes = evaluate_storage_bytes(graph)
    axes = graph_axes(graph, registry)
    proposed: list[tuple[float, int, frozenset[int]]] = []
    largest = max((len(axis.nodes) for axis in axes), default=0)
    for number, axis in enumerate(axes):
        if axis.length < _FIRST_PARTS or len(axis.nodes) <= small_axes * largest:
            continue
        for score, members in _Scores(graph, axis, frozenset(at_peak), sizes).proposed(levels):
            proposed.append((score, number, members))
    finder = _Finder(graph, registry, axes, sizes, RegionFinder(graph, registry) if leaving_out else None)
    regions: list[TreeRegion] = []
    for score, number, members in sorted(proposed, key=lambda found: (-found[0], found[1], -len(found[2]))):
        if len(regions) == most:
            break
        made = finder.region(members, number, score)
        if made is not None and not any(_is_same(made, known) for known in regions):
            regions.append(made)
    return _ordered(regions)


class _Scores:
    """Heat and score of the nodes of one axis."""

    def __init__(self, graph: Graph, axis: GraphAxis, at_peak: frozenset[int], sizes: Sequence[int]) -> None:
        self.graph, self.at_peak, self.sizes = graph, at_peak, sizes
        self.nodes = [n for n in axis.nodes if graph.nodes[n].source.phase != _OPTIMIZER]
        self.place = {node: index + 1 for index, node in enumerate(self.nodes)}  # 0 is the root
        before = [self._before(node) for node in self.nodes]
        self.above = immediate_dominators(range(len(self.nodes) + 1), [[], *before], 0)

    def proposed(self, levels: int) -> Iterator[tuple[float, frozenset[int]]]:
        """Scores and regions of the innermost nodes of each level."""
        scores = self._scores()
        top = max(scores, default=0.0)
        if top <= 0:
            return
        level = [int(levels * score / top) if score > 0 else 0 for score in scores]
        inner = [set[int]() for _ in scores]  # levels of the nodes that it strictly dominates
        for index in range(len(scores) - 1, 0, -1):
            inner[self.above[index]] |= {*inner[index], level[index]}
        for index, score in enumerate(scores):
            if level[index] >= 1 and level[index] not in inner[index]:
                yield score, self._dominated(index)

    def _before(self, node: int) -> list[int]:
        """Places of the nodes of the axis that make operands of a node; the root where there is none."""
        producers = (self.graph.producer(value) for value in self.graph.nodes[node].inputs)
        return sorted({self.place[p] for p in producers if p in self.place}) or [0]

    def _scores(self) -> list[float]:
        """By place, of what it strictly dominates: half of its heat, less what must be kept for it."""
        heat = [0.0] * (len(self.nodes) + 1)
        for index, node in reversed([*enumerate(self.nodes, 1)]):
            created = self.graph.created_storages(self.graph.nodes[node])
            own = sum(self.sizes[s] for s in created if s in self.at_peak)
            heat[self.above[index]] += heat[index] + own
        kept = self._kept()
        return [(1 - 1 / _FIRST_PARTS) * h - k for h, k in zip(heat, kept, strict=True)]

    def _kept(self) -> list[float]:
        """By place, bytes that what it strictly dominates is handed and that are not there at the peak."""
        kept = [0.0] * (len(self.nodes) + 1)
        users: dict[int, list[int]] = {}
        for index, node in enumerate(self.nodes, 1):
            for value in dict.fromkeys(self.graph.nodes[node].inputs):
                storage = self.graph.values[value].storage
                if storage is not None and storage not in self.at_peak:
                    users.setdefault(value, []).append(index)
        for value, found in users.items():
            producer = self.graph.producer(value)
            made_in = set(self._up(self.place[producer])) if producer in self.place else set()
            seen: set[int] = set()
            storage = self.graph.values[value].storage
            assert storage is not None
            for index in found:
                for place in self._up(index):
                    if place in seen or place in made_in:
                        break
                    seen.add(place)
                    kept[place] += self.sizes[storage]
        return kept

    def _up(self, index: int) -> Iterator[int]:
        """Places that strictly dominate one, from the nearest to the root."""
        while index:
            index = self.above[index]
            yield index

    def _dominated(self, index: int) -> frozenset[int]:
        """Nodes that a place strictly dominates."""
        inside = {index}
        for other in range(index + 1, len(self.above)):
            if self.above[other] in inside:
                inside.add(other)
        return frozenset(self.nodes[other - 1] for other in inside if other != index)


@dataclass(frozen=True, slots=True)
class _Finder:
    """Makes regions of nodes that may run in parts."""

    graph: Graph
    registry: OpRegistry
    axes: Sequence[GraphAxis]
    sizes: Sequence[int]
    without: RegionFinder | None

    def region(self, members: frozenset[int], number: int, score: float) -> TreeRegion | None:
        """The region of some nodes along an axis; None where they cannot run in parts."""
        if not members:
            return None
        seeds = self._handed(members, number)
        made = None
        if self._is_convex(members) and self._is_connected(members):
            made = self._checked(members, seeds, number, score)
        return made or self._with_fewer(members, seeds, number, score)

    def _is_convex(self, members: frozenset[int]) -> bool:
        return convex_members(self.graph, members, {}, self.sizes) == members

    def _handed(self, members: frozenset[int], number: int) -> dict[int, Along]:
        """Values that are handed to some nodes in parts, as the axis lies in them."""
        made = {value for node in members for value in self.graph.nodes[node].outputs}
        handed = {value for node in members for value in self.graph.nodes[node].inputs} - made
        lies: dict[int, list[int]] = {}
        for value, dim in self.axes[number].places:
            lies.setdefault(value, []).append(dim)
        return {v: Along(lies[v][0]) for v in sorted(handed) if len(lies.get(v, ())) == 1}

    def _with_fewer(
        self, members: frozenset[int], seeds: Mapping[int, Along], number: int, score: float
    ) -> TreeRegion | None:
        """The region of those of some nodes that may run in parts."""
        if self.without is None or not seeds:
            return None
        axis = self.axes[number]
        origin = self.graph.values[axis.origin[0]].name, axis.origin[1]
        found = self.without.along("tree", members, seeds, axis.length, origin)
        if found is not None and found.means:
            found = self.without.along("tree", members.difference(found.means), seeds, axis.length, origin)
        if found is None or found.views or len(found.members) < _LEAST_LEFT * len(members):
            return None
        if not self._is_convex(found.members):
            return None
        return self._checked(found.members, found.seeds, number, score)

    def _checked(
        self, members: frozenset[int], seeds: Mapping[int, Along], number: int, score: float
    ) -> TreeRegion | None:
        """The region, where rows of the op table say that all of it may run in parts."""
        made = {value for node in members for value in self.graph.nodes[node].outputs}
        handed = {value for node in members for value in self.graph.nodes[node].inputs} - made
        axis = self.axes[number]
        try:
            carried = follow(self.graph, self.registry, seeds, axis.length, members)
            if self.without is not None:
                find_region(self.graph, self.registry, members, carried.axes, carried.sums)
        except RewriteError:
            return None  # the axis lies otherwise in one of the values, or what leaves the region cannot be merged
        nodes = self.graph.nodes
        used = {v for node in nodes if node.id not in members for v in node.inputs} | {*self.graph.outputs}
        if (
            carried.barriers
            or carried.conditions
            or members - carried.members.keys()
            or used & made & (carried.maxima | carried.private)
            or any(along.outer > 1 for along in carried.axes.values())
            or handed & carried.axes.keys() != seeds.keys()
        ):
            return None
        cut = frozenset(carried.axes.keys() & (made | handed))
        return TreeRegion(members, seeds, number, axis.length, cut, score)

    def _is_connected(self, members: frozenset[int]) -> bool:
        """Whether the nodes are weakly connected among themselves."""
        beside: dict[int, list[int]] = {node: [] for node in members}
        for node in members:
            producers = (self.graph.producer(value) for value in self.graph.nodes[node].inputs)
            for other in producers:
                if other in members:
                    beside[node].append(other)
                    beside[other].append(node)
        stack = [min(members)]
        seen = set(stack)
        while stack:
            new = set(beside[stack.pop()]) - seen
            seen |= new
            stack.extend(new)
        return seen == members


def _is_same(one: TreeRegion, other: TreeRegion) -> bool:
    return one.members == other.members and one.seeds == other.seeds


def _ordered(regions: Sequence[TreeRegion]) -> FTree:
    """The tree of regions by containment; of two with the same members the higher score is around the other."""
    order = sorted(regions, key=lambda region: (-len(region.members), -region.score))
    made: list[TreeRegion] = []
    children: list[list[int]] = []
    for region in order:
        inside = [k for k, other in enumerate(made) if region.members <= other.members]
        parent = max(inside, key=lambda k: (-len(made[k].members), k), default=-1)
        if parent >= 0:
            children[parent].append(len(made))
        made.append(replace(region, parent=parent))
        children.append([])
    return FTree(tuple(made), tuple(map(tuple, children)))
