"""Regions that may run in parts which overlap: along the axes that convolutions, their gradients and pools read by windows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction

from neaptide.analysis.axes.windows import Scaled, WindowAxis, follow_windows
from neaptide.errors import RewriteError
from neaptide.ir.axes import Along, Need
from neaptide.ir.graph import Graph
from neaptide.ir.registry import OpRegistry
from neaptide.transform.fission.candidates import Candidate, RegionFinder
from neaptide.transform.fission.intervals import Intervals, window_region
from neaptide.transform.fission.members import convex_members
from neaptide.transform.fission.region import Region
from neaptide.transform.fission.spans import Span, has_backward, whole_step


def window_candidates(graph: Graph, registry: OpRegistry) -> tuple[Candidate, ...]:
    """Regions of a graph whose windows overlap, those that make the most bytes first.

    All of the graph, and of one without a backward what lies between narrow places around its widest, along each axis of
    what crosses where the region begins. O(stretches x axes x nodes).
    """
    found: dict[tuple[frozenset[int], int], Candidate] = {}
    for made in _WindowFinder(graph, registry).stretches():
        found.setdefault((made.members, made.origin[1]), made)
    return tuple(sorted(found.values(), key=lambda made: (-made.nbytes, made.origin)))


def window_means(graph: Graph, registry: OpRegistry) -> tuple[int, ...]:
    """Nodes of a training step that take a mean along an axis that windows read; as sums, they may run in parts."""
    return tuple(sorted(_WindowFinder(graph, registry).means()))


class _WindowFinder(RegionFinder):
    def means(self) -> set[int]:
        """Of all regions of a step, those that take a mean."""
        found: set[int] = set()
        for span in self._steps():
            for value in self.batch():
                for dim in self._dims(value):
                    seeds = {value: Scaled(dim, Fraction(1))}
                    axis = follow_windows(self.graph, self.registry, seeds, range(span.start, span.end))
                    if any(Need.HALO in member.needs for member in axis.members.values()):
                        found |= axis.means
        return found

    def stretches(self) -> Iterator[Candidate]:
        """Regions of all stretches along all dims."""
        least = self.least_bytes()
        for span in self._steps() or self.free_stretches():
            for value in span.crossing[:1] or self.batch():
                for dim in self._dims(value):
                    made = self._overlapping(span, value, dim)
                    if made is not None and made.nbytes > least:
                        yield made

    def _dims(self, value: int) -> list[int]:
        """Dims of a value that can be cut."""
        shape = self.graph.values[value].shape
        return [d for d, extent in enumerate(shape) if extent.is_constant and extent.constant_value() > 1]

    def _steps(self) -> list[Span]:
        """Forward and backward of a training step, if it holds no loop."""
        step = whole_step(self.graph) if has_backward(self.graph) else None
        if step is None or any(node.regions for node in self.graph.nodes[step.start : step.end]):
            return []
        return [step]

    def _overlapping(self, span: Span, value: int, dim: int) -> Candidate | None:
        """The region of a stretch along a dim of a value; None where windows do not overlap along it, or it is no region."""
        graph, registry = self.graph, self.registry
        seeds = {value: Scaled(dim, Fraction(1))}
        axis = follow_windows(graph, registry, seeds, range(span.start, span.end))
        wanted = {n for n in axis.members if self._may_repeat(graph.nodes[n])}
        members: frozenset[int] = frozenset()
        while members != wanted:
            self._leave_what_is_written_outside(wanted)
            members = convex_members(graph, wanted, {}, self.sizes)
            seeds = self._cut(members, axis)
            wanted = set(members & follow_windows(graph, registry, seeds, members).members.keys())
        if not any(Need.HALO in axis.members[n].needs for n in members):
            return None
        try:
            region, axis, intervals = window_region(graph, registry, members, seeds)
        except RewriteError:
            return None  # such as results that do not end with the axis
        if intervals.units < 2:
            return None
        origin = graph.values[value].name, dim
        share = self._all_made_bytes(members) / max(self._all_made_bytes(range(span.start, span.end)), 1)
        beyond = self._beyond(region, axis, intervals)
        nbytes = sum(self.sizes[storage] for storage in beyond)
        here = [number for number in seeds if number in intervals.made]
        along = {number: Along(seeds[number].dim) for number in here}
        scales = {number: Fraction(intervals.made[number].scale) for number in here}
        return Candidate(
            "step" if has_backward(graph) else "stretch",
            origin,
            intervals.units,
            along,
            members,
            frozenset(beyond),
            nbytes,
            share,
            (),
            scales=scales,
            beyond=beyond,
        )

    def _cut(self, members: frozenset[int], axis: WindowAxis) -> dict[int, Scaled]:
        """Values made outside that members take in parts."""
        used = {v for n in members for v in self.graph.nodes[n].inputs}
        made = {v for n in members for v in self.graph.nodes[n].outputs}
        return {v: axis.values[v] for v in sorted(used - made) if v in axis.values}

    def _beyond(self, region: Region, axis: WindowAxis, intervals: Intervals) -> Mapping[int, float]:
        """By storage that a region makes, what a part makes beside its own elements, as a share of all."""
        found: dict[int, float] = {}
        for number in region.members:
            for made in self._created(self.graph.nodes[number]):
                storage = self.graph.values[made].storage
                if storage is not None and made in intervals.made:
                    extent = self.graph.values[made].shape[axis.values[made].dim].constant_value()
                    found[storage] = intervals.made[made].beyond / extent
        return found
