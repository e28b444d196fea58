"""Where regions of a variant may lie: in its graph, and in the bodies of its loops."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from neaptide.ir.graph import Graph
from neaptide.ir.loop_maps import Binding
from neaptide.ir.nodes import Loop
from neaptide.ir.with_sizes import with_sizes
from neaptide.transform.rewrite import STATIC, Sizes, sizes_within


@dataclass(frozen=True)
class Level:
    """A graph, or the body of a loop in it.

    Attributes:
        graph: as it is, dims of parts and all.
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
        return with_sizes(self.graph, self._full_sizes)

    @property
    def _full_sizes(self) -> Binding:
        return self.sizes[0]

    def cut_before(self) -> frozenset[tuple[int, int]]:
        """Values that the loop hands over in parts, each with the dim."""
        if self.loop is None:
            return frozenset()
        return frozenset((self.graph.inputs[part.input], part.axis) for part in self.loop.slices)


def levels_of(graph: Graph) -> Iterator[Level]:
    """A graph and the bodies in it, each behind what it lies in. O(size)."""
    waiting = [Level(graph)]
    while waiting:
        here = waiting.pop(0)
        yield here
        for node in here.graph.nodes:
            for loop in node.regions:
                sizes = sizes_within(here.graph, node.id, here.sizes)
                waiting.append(Level(loop.body, (*here.within, node.id), sizes, loop))
