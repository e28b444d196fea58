"""A variant: what some rewrites make of a graph, and the rewrites that are worth a look."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from neaptide.analysis.axes.carried import Carried
from neaptide.analysis.axes.follow import follow
from neaptide.errors import RewriteError
from neaptide.ir.edit import Edited
from neaptide.ir.graph import Graph
from neaptide.ir.registry import OpRegistry
from neaptide.transform.fission.candidates import Candidate, candidates
from neaptide.transform.rewrite import Rewrite, replay
from neaptide.transform.rules import RULES
from neaptide.transform.rules.fission import fission
from neaptide.transform.rules.mean_as_sum import mean_as_sum
from neaptide.units import format_bytes

# Numbers of parts, each about one and a half times the one before.
_LADDER = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)

# Times that means are looked for: a mean of means is seldom.
_MOST_MEANS = 3

Objection = Callable[[Edited], str | None]


@dataclass(frozen=True, slots=True)
class Variant:
    """A graph after some rewrites.

    Attributes:
        label: what was done, in words.
        kind: of the region that runs in parts.
        parts: how many.
        rewrites: to be replayed from the graph that was captured.
        edited: what they make of it.
    """

    label: str
    kind: str
    parts: int
    rewrites: tuple[Rewrite, ...]
    edited: Edited


class Variants:
    """The variants of a graph.

    Args:
        graph: as captured.
        registry: what its operations mean.
        objection: why a changed graph is not wanted, for reasons that the graph does not tell; None where it is.
    """

    def __init__(self, graph: Graph, registry: OpRegistry, objection: Objection) -> None:
        self.graph, self.registry, self.objection = graph, registry, objection
        self.first, self.begun = self._without_means()
        self.regions = candidates(self.begun.graph, registry)
        """Regions that may run in parts, of the graph whose means are sums; those that make most bytes in parts first."""
        self.refusals: list[tuple[Candidate, str]] = []

    def in_words(self) -> tuple[str, ...]:
        """The regions, a line each."""
        return tuple(
            f"{described(region)}: {region.length} long, {format_bytes(region.nbytes)} made in parts"
            for region in self.regions
        )

    def axes(self) -> tuple[Carried, ...]:
        """Each axis of the regions once, followed through all but the updates. O(axes x nodes)."""
        graph = self.begun.graph
        nodes = [node.id for node in graph.nodes if node.source.phase != "optimizer"]
        found: list[Carried] = []
        for region in self.regions:
            if not any(
                known.length == region.length
                and all(known.axes.get(value) == along for value, along in region.seeds.items())
                for known in found
            ):
                found.append(follow(graph, self.registry, region.seeds, region.length, nodes))
        return tuple(found)

    def in_parts(self, region: Candidate, parts: int) -> Variant | None:
        """The variant with one region in parts; None where it cannot be, and `refusals` says why."""
        rewrite = fission(
            self.begun.graph, region.members, length=region.length, parts=parts, inputs=region.seeds
        )
        try:
            edited = self.begun.then(replay(self.begun.graph, self.registry, [rewrite], RULES))
            reason = self.objection(edited)
        except RewriteError as error:
            reason = error.what
        if reason is not None:
            self.refusals.append((region, reason))
            return None
        return Variant(described(region, parts), region.kind, parts, (*self.first, rewrite), edited)

    def _without_means(self) -> tuple[tuple[Rewrite, ...], Edited]:
        """What makes sums of the means that would stand in the way of parts; a mean may come to light behind another."""
        made, rewrites = Edited.unchanged(self.graph), []
        for _ in range(_MOST_MEANS):
            # Means stand between the forward and its loss, which lies in all regions.
            regions = candidates(made.graph, self.registry, most=1)
            means = sorted({node for region in regions for node in region.means})
            if not means:
                break
            rewrites.append(mean_as_sum(means))
            made = made.then(replay(made.graph, self.registry, rewrites[-1:], RULES))
        return tuple(rewrites), made


def ladder(length: int) -> Sequence[int]:
    """Numbers of parts that are tried for an axis, ascending; each makes parts of another length."""
    steps: dict[int, int] = {}
    for parts in (*_LADDER, length):
        if 2 <= parts <= length:
            step = -(-length // parts)
            steps.setdefault(step, -(-length // step))
    return sorted(set(steps.values()) - {1})


def described(region: Candidate, parts: int | None = None) -> str:
    """A region in words, in parts or as it is: `forward and backward in 4 parts along dim 0 of batch_0`."""
    name, dim = region.origin
    what = "forward and backward" if region.kind == "step" else f"what lies behind {name}"
    return f"{what}{'' if parts is None else f' in {parts} parts'} along dim {dim} of {name}"
