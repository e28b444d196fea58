"""What may follow from a variant: regions of its graph that may run in parts, the number of parts still open.

One choice is a region, or a family of regions that are alike and are decided once. Regions that hold a loop are none: what
was chosen before stays as it is, and what is chosen next lies beside it, or in the body of one of its loops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from neaptide.errors import RewriteError
from neaptide.ir.edits.edit import Edited
from neaptide.ir.edits.with_sizes import with_sizes
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Loop
from neaptide.ir.registry import OpRegistry
from neaptide.planner.variants.settings import SETTINGS
from neaptide.planner.variants.variant import Decision, Variant
from neaptide.transform.fission.candidates import Candidate, RegionFinder, candidates, means_in_regions
from neaptide.transform.fission.expand_contract import (
    ExpandContract,
    amplified,
    backwards_recomputing,
    expand_contract,
)
from neaptide.transform.fission.spans import has_backward
from neaptide.transform.fission.window_candidates import window_candidates, window_means
from neaptide.transform.rewrite import STATIC, Sizes, replay, sizes_within
from neaptide.transform.rules import RULES
from neaptide.transform.rules.fission import fission, windows
from neaptide.transform.rules.mean_to_sum import mean_to_sum

_DRAWS, _GRADIENTS = RULES["split_dropout"], RULES["split_convolution_backward"]
_KINDS = {
    "step": "forward and backward",
    "suffix": "what lies after {}",
    "expand_contract": "what makes {} wider",
    "stretch": "a stretch from {} on",
}

# Micro-batching splits everything but what makes numbers, such as the count of labels.
_WHOLE = 0.95

# Each about one and a half times the one before.
_LADDER = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)

Objection = Callable[[Edited], str | None]


@dataclass(frozen=True)
class Level:
    """A graph, or the body of a loop in it.

    Attributes:
        within: the loop, from the outermost on (`Rewrite.within`); empty for the graph itself.
        sizes: that it runs under, those of a full part first.
        loop: whose body it is; None for the graph itself.
    """

    graph: Graph
    within: tuple[int, ...] = ()
    sizes: Sizes = STATIC
    loop: Loop | None = None

    @cached_property
    def full(self) -> Graph:
        """The graph of a full part, with numbers for all dims; nodes and values are those of `graph`."""
        return with_sizes(self.graph, self.sizes[0])

    def cut_before(self) -> frozenset[tuple[int, int]]:
        """Values that the loop hands over in parts, each with the dim."""
        if self.loop is None:
            return frozenset()
        return frozenset((self.graph.inputs[part.input], part.axis) for part in self.loop.slices)


def body_at(graph: Graph, within: tuple[int, ...]) -> Graph:
    """The body of the loop at the end of a path; the graph itself for none."""
    for loop in within:
        graph = graph.nodes[loop].regions[0].body
    return graph


def levels_of(graph: Graph) -> Iterator[Level]:
    """A graph and the bodies in it, each after what it lies in. O(size)."""
    waiting = [Level(graph)]
    while waiting:
        here = waiting.pop(0)
        yield here
        for node in here.graph.nodes:
            for loop in node.regions:
                sizes = sizes_within(here.graph, node.id, here.sizes)
                waiting.append(Level(loop.body, (*here.within, node.id), sizes, loop))


@dataclass(frozen=True, slots=True)
class Choice:
    """Regions that may run in parts, all in the same number.

    Attributes:
        begun: the variant in whose graph they are: the one that it follows from, after what the regions need first.
        regions: each along an axis of the same length.
        within: the loop in whose body they are (`Rewrite.within`); empty for the graph.
    """

    begun: Variant
    regions: tuple[Candidate, ...]
    within: tuple[int, ...] = ()

    @property
    def length(self) -> int:
        """Of the axis."""
        return self.regions[0].length

    @property
    def nbytes(self) -> int:
        """That the regions make in parts."""
        return sum(region.nbytes for region in self.regions)

    @property
    def is_whole_step(self) -> bool:
        """Whether the regions are the whole step, as when it is split by hand."""
        wholes = (region.kind == "step" and region.share > _WHOLE for region in self.regions)
        return not self.within and all(wholes)

    def described(self, parts: int | None = None) -> str:
        """In words, in parts or as it is: `forward and backward in 4 parts along dim 0 of batch_0`."""
        name, dim = self.regions[0].origin
        what = _KINDS[self.regions[0].kind].format(name)
        if self.regions[0].kind == "step" and not has_backward(self.begun.graph):
            what = "the forward"
        like = f" and its like ({len(self.regions)} regions)" if len(self.regions) > 1 else ""
        where = " in each part" if self.within else ""
        return f"{what}{like}{where}{'' if parts is None else f' in {parts} parts'} along dim {dim} of {name}"


class Choices:
    """Finds choices and takes them.

    It remembers what it found in a graph before anything was chosen: finding that takes seconds in a long graph, and searches
    for other limits begin with the same.
    """

    def __init__(self, registry: OpRegistry, objection: Objection) -> None:
        self.registry, self.objection = registry, objection
        self.refusals: list[str] = []
        self.bounds: dict[Variant, int] = {}  # what no parts after a variant go below, in bytes
        self._begun: list[tuple[Graph, Variant]] = []
        self._after: dict[Variant, tuple[Choice, ...]] = {}
        self._left_out: dict[Variant, int] = {}

    def begun(self, graph: Graph) -> Variant:
        """A captured graph without the means that would stand in the way of parts, and with masks drawn by themselves."""
        found = next((begun for known, begun in self._begun if known is graph), None)
        if found is None:
            found = self._drawn_first(graph)
            while means := means_in_regions(found.graph, self.registry):
                found = found.then(
                    self.registry, [mean_to_sum(means)]
                )  # a mean may come to light after another
            self._begun.append((graph, found))
        return found

    def without_parts(self, begun: Variant) -> Variant:
        """What a variant becomes where nothing of it runs in parts: masks that are drawn by themselves take time for nothing then."""
        for graph, made in self._begun:
            if made is begun and any(one.rule == _DRAWS.name for one in made.rewrites):
                return Variant.captured(graph)
        return begun

    def _drawn_first(self, graph: Graph) -> Variant:
        plain = Variant.captured(graph)
        first = tuple(_DRAWS.find(graph, self.registry))
        made = plain.then(self.registry, first) if first else plain
        reason = self.objection(made.edited) if first else None
        if reason is None:
            return made
        self.refuse(first[0].rule, reason)
        return plain

    def after(self, variant: Variant) -> tuple[Choice, ...]:
        """What may follow from a variant, those that make most bytes in parts first."""
        if variant in self._after:
            return self._after[variant]
        found = [choice for level in levels_of(variant.graph) for choice in self._in(variant, level)]
        found.sort(key=lambda choice: (-choice.nbytes, choice.regions[0].origin))
        first = tuple(found[: SETTINGS.most_choices])
        self._left_out[variant] = len(found) - len(first)
        if any(variant is begun for _, begun in self._begun):
            self._after[variant] = first
        return first

    def left_out_after(self, variant: Variant) -> int:
        """How many choices may follow from a variant beside those of `after`, once that was asked."""
        return self._left_out.get(variant, 0)

    def taken(self, choice: Choice, parts: int) -> Variant | None:
        """The variant with the regions of a choice in parts; None where they cannot be, and `refusals` says why."""
        try:
            variant = self._in_parts(choice, parts)
            reason = self.objection(variant.edited)
        except RewriteError as error:
            reason = error.what
        if reason is not None:
            self.refuse(choice.described(parts), reason)
            return None
        return variant

    def refuse(self, what: str, reason: str) -> None:
        """Remember once what could not be done, and why."""
        told = f"{what}: {reason}"
        if told not in self.refusals:
            self.refusals.append(told)

    def _in_parts(self, choice: Choice, parts: int) -> Variant:
        graph, rewrites = body_at(choice.begun.graph, choice.within), []
        for made in choice.regions:
            nodes = made.members | made.views
            split = (
                windows(graph, nodes, parts=parts, inputs=made.scaled_seeds())
                if made.scales
                else fission(graph, nodes, length=made.length, parts=parts, inputs=made.seeds)
            )
            rewrites.append(replace(split, within=choice.within))
        decision = Decision(choice.described(parts), choice.nbytes, is_whole_step=choice.is_whole_step)
        return choice.begun.then_all(self.registry, rewrites, decision)

    def _in(self, variant: Variant, level: Level) -> Iterator[Choice]:
        """Regions of the graph of a variant, or of the body of a loop in it."""
        cut = level.cut_before()
        beside = candidates(level.full, self.registry)
        for region in beside:
            again = any((value, along.dim) in cut for value, along in region.seeds.items())
            # All of a part in parts, along the axis that makes the part, is the same in more parts.
            if not (again and region.kind == "step" and region.share > _WHOLE):
                yield Choice(variant, (region,), level.within)
        # Overlapping parts do not fill what a loop around puts together.
        if not level.within:
            yield from self._overlapping(variant, beside)
        yield from self._amplified(variant, level)

    def _overlapping(self, variant: Variant, beside: Sequence[Candidate]) -> Iterator[Choice]:
        """Regions whose parts overlap. Of a training step only where most of it has no parts that lie side by side."""
        if has_backward(variant.graph):
            if any(region.kind == "step" and region.share > 0.5 for region in beside):
                return
            variant = variant.then(self.registry, tuple(_GRADIENTS.find(variant.graph, self.registry)))
            while means := window_means(variant.graph, self.registry):
                variant = variant.then(self.registry, [mean_to_sum(means)])
        for region in window_candidates(variant.graph, self.registry):
            yield Choice(variant, (region,))

    def _amplified(self, variant: Variant, level: Level) -> Iterator[Choice]:
        """Families of expand-contract blocks with their backwards, along each axis."""
        least = RegionFinder(level.full, self.registry).least_bytes()
        for family in expand_contract(level.full, least):
            found = self._apart(variant, level, family)
            for dim, extent in enumerate(level.full.values[family[0].narrow].shape):
                if found is None or not extent.is_constant or extent.constant_value() < 2:
                    continue
                begun, regions = found[0], found[1](dim)
                # What cannot run in parts along this axis is left as it is.
                some = [made for made, both in zip(family, regions, strict=True) if both is not None]
                if 0 < len(some) < len(family):
                    other = self._apart(variant, level, some)
                    begun, regions = (begun, ()) if other is None else (other[0], other[1](dim))
                together = tuple(region for both in regions if both is not None for region in both)
                if together and None not in regions and len({made.length for made in together}) == 1:
                    yield Choice(begun, together, level.within)

    def _apart(
        self, variant: Variant, level: Level, family: Sequence[ExpandContract]
    ) -> tuple[Variant, Callable[[int], Sequence[tuple[Candidate, ...] | None]]] | None:
        """A variant in which the backwards of some expand-contract blocks recompute what they need, and their regions by dim."""
        apart = backwards_recomputing(family)
        first = () if apart is None else (replace(apart, within=level.within),)
        try:
            later = replay(variant.graph, self.registry, first, RULES)
        except RewriteError as error:
            self.refuse(f"what makes {level.full.values[family[0].narrow].name} wider", error.what)
            return None
        begun = Variant(variant.decisions, (*variant.rewrites, *first), variant.edited.then(later))
        here = _inside(later, level.within)
        finder = RegionFinder(replace(level, graph=here.graph).full, self.registry)
        return begun, lambda dim: amplified(finder, here, family, dim)


def _inside(edited: Edited, within: tuple[int, ...]) -> Edited:
    """What became of the body of a loop."""
    for loop in within:
        body = edited.graph.nodes[loop].regions[0].body
        edited = edited.bodies.get(loop) or Edited.unchanged(body)
    return edited


def ladder(length: int) -> Sequence[int]:
    """Numbers of parts that are tried for an axis, ascending; each makes parts of another length."""
    steps: dict[int, int] = {}
    for parts in (*_LADDER, length):
        if 2 <= parts <= length:
            step = -(-length // parts)
            steps.setdefault(step, -(-length // step))
    return sorted(set(steps.values()) - {1})
