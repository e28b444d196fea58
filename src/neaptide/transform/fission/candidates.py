"""Regions of a program that are worth a look: where splitting them frees bytes, before anybody asks what it costs.

All of forward and backward along each axis of the inputs (whole-step micro-batching is one of these), and what lies after
each narrow place of the forward along each axis of what crosses there. DESIGN of regions that end at the loss: they need
no sums over the step's gradients to be kept, and the largest activations, as logits are, lie there. Of a graph without a
backward, all of it, and what lies between narrow places around its widest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from neaptide.analysis.alias import is_pure_view
from neaptide.analysis.axes.follow import Carried, follow
from neaptide.analysis.axes.lines import Lines
from neaptide.analysis.axes.windows import Scaled
from neaptide.analysis.sizes import evaluate_storage_bytes
from neaptide.errors import RewriteError
from neaptide.ir.axes import Along, Need
from neaptide.ir.dependencies import needed_inputs
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node
from neaptide.ir.registry import OpRegistry
from neaptide.ir.values import Kind
from neaptide.transform.fission.members import convex_members
from neaptide.transform.fission.region import destinations
from neaptide.transform.fission.spans import Span, stretches, suffixes, whole_step

# A region that makes fewer bytes than this share of all that forward and backward make is not worth a loop.
_SMALL: Final = 0.02
MOST_SUFFIXES: Final = 8


@dataclass(frozen=True, slots=True)
class Candidate:
    """A region, and the axis along which it may run in parts.

    Attributes:
        kind: `step`, `suffix`, `expand_contract`, or of a graph without a backward `stretch`.
        origin: the value that names the axis, and its dim: the input, the largest value that crosses where a suffix or a
            stretch begins, or what an expand-contract block makes wider.
        seeds: values handed to the region in parts, and where the axis lies in them.
        share: of the bytes that are made where it was looked for, those that the region makes.
        means: nodes that take a mean along the axis, to be taken as sums first; the region is then to be found anew.
        views: of what is handed over, that each part makes for itself beside the members; see `region.Region`.
        scales: where windows read the axis, by seed its elements for one unit of `length`; empty where none do.
        beyond: where they do, by storage what a part makes beside its own elements, as a share of all.
    """

    kind: str
    origin: tuple[str, int]
    length: int
    seeds: Mapping[int, Along]
    members: frozenset[int]
    in_parts: frozenset[int]
    nbytes: int
    share: float
    means: tuple[int, ...]
    views: frozenset[int] = frozenset()
    scales: Mapping[int, Fraction] = field(default_factory=dict)
    beyond: Mapping[int, float] = field(default_factory=dict)

    def scaled_seeds(self) -> dict[int, Scaled]:
        """Where an axis that windows read lies in what is handed to the region."""
        return {value: Scaled(self.seeds[value].dim, scale) for value, scale in self.scales.items()}


def candidates(graph: Graph, registry: OpRegistry, most: int = MOST_SUFFIXES) -> tuple[Candidate, ...]:
    """Regions that may run in parts, those that make the most bytes in parts first. O(suffixes x axes x nodes).

    At most so many suffixes are looked at, the shortest and the longest among them.
    """
    finder = RegionFinder(graph, registry)
    found: dict[object, Candidate] = {}
    for made in finder.spans(most):
        known = found.setdefault((made.members, made.length), made)
        if known.views and not made.views:
            found[made.members, made.length] = made
    return tuple(sorted(found.values(), key=lambda made: (-made.nbytes, made.origin)))


def means_in_regions(graph: Graph, registry: OpRegistry) -> tuple[int, ...]:
    """Nodes that take a mean along the axis of a region of the whole step, or of the shortest suffix; ascending.

    Regions are found only until all means along their axes are known.
    """
    finder = RegionFinder(graph, registry)
    finder.known_means = set()
    for made in finder.spans(1):
        finder.known_means.update(made.means)
    return tuple(sorted(finder.known_means))


class RegionFinder:
    """Finds what may run in parts among some nodes of a graph.

    With `known_means`, only regions along an axis of which another node takes a mean.
    """

    def __init__(self, graph: Graph, registry: OpRegistry) -> None:
        self.graph, self.registry = graph, registry
        self.sizes = evaluate_storage_bytes(graph)
        self.destinations = destinations(graph)
        self.filled_by = _filled_by(graph)
        self.lines: dict[int, Lines] = {}
        self.known_means: set[int] | None = None

    def least_bytes(self) -> float:
        """What a region must make in parts to be worth a loop."""
        step = whole_step(self.graph)
        return 0.0 if step is None else _SMALL * self._all_made_bytes(range(step.start, step.end))

    def spans(self, most: int) -> Iterator[Candidate]:
        """Regions of the whole step and of suffixes."""
        step = whole_step(self.graph)
        if step is None:
            return
        least = self.least_bytes()
        # What holds a loop already is no region: a loop is not split from outside.
        loops = [node.id for node in self.graph.nodes if node.regions]
        for value in () if loops else self.batch():
            yield from self._along_dims("step", step, value, least)
        free = [span for span in suffixes(self.graph) if not any(span.start <= n < span.end for n in loops)]
        for span in _spread(free, most):
            yield from self._along_dims("suffix", span, span.crossing[0], least)
        for span in self.free_stretches():
            for value in span.crossing[:1] or self.batch():
                yield from self._along_dims("stretch", span, value, least)

    def free_stretches(self) -> list[Span]:
        """Stretches of a graph without a backward that hold no loop."""
        loops = [node.id for node in self.graph.nodes if node.regions]
        return [span for span in stretches(self.graph) if not any(span.start <= n < span.end for n in loops)]

    def batch(self) -> list[int]:
        """Inputs that are neither state nor numbers."""
        found = []
        for number in self.graph.inputs:
            storage = self.graph.values[number].storage
            if storage is not None and self.graph.storages[storage].kind is Kind.INPUT:
                found.append(number)
        return found

    def _along_dims(self, kind: str, span: Span, value: int, least: float) -> Iterator[Candidate]:
        for dim, extent in enumerate(self.graph.values[value].shape):
            if extent.is_constant and extent.constant_value() > 1:
                made = self.found(kind, range(span.start, span.end), value, dim)
                if made is not None and made.nbytes > least:
                    yield made

    def found(
        self,
        kind: str,
        nodes: Collection[int],
        value: int,
        dim: int,
        views: Collection[int] = (),
    ) -> Candidate | None:
        """Those of some nodes that may run in parts along a dim of a value that is handed to them; None if there is no such region."""
        length = self.graph.values[value].shape[dim].constant_value()
        origin = self.graph.values[value].name, dim
        return self.along(kind, nodes, {value: Along(dim)}, length, origin, views)

    def along(
        self,
        kind: str,
        nodes: Collection[int],
        seeds: Mapping[int, Along],
        length: int,
        origin: tuple[str, int],
        views: Collection[int] = (),
    ) -> Candidate | None:
        """Those of some nodes that may run in parts along an axis; None if there is no such region.

        `views` of what is handed to them lead the axis there, and are no members.
        """
        try:
            carried = self._follow(seeds, length, {*nodes, *views})
        except RewriteError:
            return None  # the axis contradicts itself: no region along it
        means = tuple(c.node for c in carried.conditions if c.need is Need.MEAN)
        if self.known_means is not None and self.known_means.issuperset(means):
            return None
        left_out = {c.node for c in carried.conditions if c.need not in (Need.COMPLETE, Need.MEAN)}
        left_out.update(views)
        left = {n for n in carried.members if n not in left_out and self._may_repeat(self.graph.nodes[n])}
        members: frozenset[int] = frozenset()
        while members != left:
            self._leave_what_is_written_outside(left)
            complete = self._complete(carried)
            members = convex_members(self.graph, left, complete, self.sizes)
            # What nothing in the region cuts any more would run whole in each part.
            left = set(members - self._idle(members, carried) - self._torn(members, carried))
            self._leave_what_is_written_outside(left)
        in_parts = frozenset(
            storage
            for n in members
            for v in self._created(self.graph.nodes[n])
            if (v in carried.axes or v in carried.private)
            and (storage := self.graph.values[v].storage) is not None
        )
        nbytes = sum(self.sizes[storage] for storage in in_parts)
        handed = self._own_views(self._handed(members, carried), length)
        if not members or handed is None:
            return None  # a part of what is handed over would lie in several places
        own, handed_in_parts = handed
        share = self._all_made_bytes(members) / max(self._all_made_bytes(nodes), 1)
        return Candidate(kind, origin, length, handed_in_parts, members, in_parts, nbytes, share, means, own)

    def _follow(self, seeds: Mapping[int, Along], length: int, nodes: Collection[int]) -> Carried:
        return follow(self.graph, self.registry, seeds, length, nodes, self._lines(length))

    def _lines(self, length: int) -> Lines:
        return self.lines.setdefault(length, Lines(self.graph, self.registry, length))

    def _own_views(
        self, handed: Mapping[int, Along], length: int
    ) -> tuple[frozenset[int], dict[int, Along]] | None:
        """The views that a region is to make for itself, and what it is then handed in parts; None where that cannot be."""
        views: set[int] = set()
        seeds: dict[int, Along] = {}
        waiting = dict(handed)
        while waiting:
            value, along = waiting.popitem()
            if along.outer == 1:
                if seeds.setdefault(value, along) != along:
                    return None
                continue
            producer = self.graph.producer(value)
            if producer is None or not is_pure_view(self.graph, node := self.graph.nodes[producer]):
                return None
            line = self._lines(length).find(node, {}, {}, {node.outputs.index(value): along})
            if line is None:
                return None
            views.add(producer)
            waiting.update({node.inputs[slot]: lies for slot, lies in line.operands.items()})
        return frozenset(views), seeds

    def _leave_what_is_written_outside(self, wanted: set[int]) -> None:
        """Leave outside what overwrites a storage that is made outside, and what makes room for a mask that is drawn whole."""
        count = len(wanted) + 1
        while len(wanted) < count:
            count = len(wanted)
            wanted -= {n for n in wanted if self.filled_by.get(n, n) not in wanted}
            made = {s for n in wanted for s in self.graph.created_storages(self.graph.nodes[n])}
            made |= self.destinations
            writers = [n for n in wanted if self.graph.nodes[n].effects.writes]
            wanted.difference_update(
                n for n in writers if any(a.storage not in made for a in self.graph.nodes[n].effects.writes)
            )

    def _idle(self, members: frozenset[int], carried: Carried) -> frozenset[int]:
        """Members that carry the axis no more when only the members are looked at."""
        if not members:
            return members
        again = self._follow(self._handed(members, carried), carried.length, members)
        return frozenset(again.untouched & members)

    def _torn(self, members: frozenset[int], carried: Carried) -> frozenset[int]:
        """Members that make what only the same part can read, for a node outside, or that need it from there."""
        if not carried.private:
            return frozenset()
        inside = {v for n in members for v in self.graph.nodes[n].outputs} & carried.private
        left = {v for n in self.graph.nodes if n.id not in members for v in n.inputs} | {*self.graph.outputs}
        torn = (inside & left) | (carried.private - inside)
        return frozenset(
            n
            for n in members
            if not torn.isdisjoint((*self.graph.nodes[n].inputs, *self.graph.nodes[n].outputs))
        )

    def _handed(self, members: frozenset[int], carried: Carried) -> dict[int, Along]:
        """Values made outside that members take in parts."""
        used = {v for n in members for v in self.graph.nodes[n].inputs}
        made = {v for n in members for v in self.graph.nodes[n].outputs}
        return {v: carried.axes[v] for v in sorted(used - made) if v in carried.axes}

    def _complete(self, carried: Carried) -> dict[int, set[int]]:
        """By node that needs sums complete, the nodes that make their terms."""
        found: dict[int, set[int]] = {}
        for condition in carried.conditions:
            if condition.need is Need.COMPLETE:
                makers = (self.graph.producer(value) for value in condition.values)
                found.setdefault(condition.node, set()).update(n for n in makers if n is not None)
        return found

    def _may_repeat(self, node: Node) -> bool:
        """Whether a node may run once for each part: it changes nothing of the caller's, and tells nobody anything."""
        written = (v for v in node.inputs if self._is_written(node, v))
        owned = (v for v in written if self.graph.producer(v) is None)
        if any(self.graph.values[v].storage not in self.destinations for v in owned):
            return False
        return not (node.effects.rng or node.effects.collective or node.effects.host or node.regions)

    def _is_written(self, node: Node, value: int) -> bool:
        storage = self.graph.values[value].storage
        return any(access.storage == storage for access in node.effects.writes)

    def _created(self, node: Node) -> list[int]:
        """The first value on each storage that a node creates."""
        first: dict[int, int] = {}
        created = set(self.graph.created_storages(node))
        for value in node.outputs:
            storage = self.graph.values[value].storage
            if storage in created:
                first.setdefault(storage, value)
        return list(first.values())

    def _all_made_bytes(self, nodes: Iterable[int]) -> int:
        created = (s for n in nodes for s in self.graph.created_storages(self.graph.nodes[n]))
        return sum(self.sizes[storage] for storage in created)


def _filled_by(graph: Graph) -> dict[int, int]:
    """By node that makes a storage from nothing but a shape, the first that touches it, where that overwrites it. O(size)."""
    makers: dict[int | None, int] = {}
    found: dict[int, int] = {}
    for node in graph.nodes:
        needed = needed_inputs(graph, node)
        for storage in {graph.values[value].storage for value in needed} & makers.keys():
            maker = makers.pop(storage)
            if any(access.storage == storage for access in node.effects.writes):
                found[maker] = node.id
        if not needed:
            makers |= dict.fromkeys(graph.created_storages(node), node.id)
    return found


def _spread(spans: Sequence[Span], count: int) -> tuple[Span, ...]:
    """Some of the spans, with the first and the last, evenly in between."""
    if len(spans) <= count:
        return tuple(spans)
    places = {len(spans) - 1 - round(k * (len(spans) - 1) / max(count - 1, 1)) for k in range(count)}
    return tuple(spans[place] for place in sorted(places))
