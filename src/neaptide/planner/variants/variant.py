"""A variant: what some rewrites make of a graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from neaptide.ir.edit import Edited
from neaptide.ir.graph import Graph
from neaptide.ir.registry import OpRegistry
from neaptide.transform.rewrite import Rewrite, replay
from neaptide.transform.rules import RULES


@dataclass(frozen=True, slots=True)
class Variant:
    """A graph after some rewrites.

    Attributes:
        labels: what was done, in words, one for each choice that was taken.
        rewrites: to be replayed from the graph that was captured.
        edited: what they make of it.
    """

    labels: tuple[str, ...]
    rewrites: tuple[Rewrite, ...]
    edited: Edited

    @staticmethod
    def captured(graph: Graph) -> Variant:
        """The graph as it is."""
        return Variant((), (), Edited.unchanged(graph))

    @property
    def label(self) -> str:
        """All that was done, in words."""
        return ", then ".join(self.labels)

    @property
    def graph(self) -> Graph:
        """After the rewrites."""
        return self.edited.graph

    def then(self, registry: OpRegistry, rewrites: Sequence[Rewrite], *labels: str) -> Variant:
        """With more rewrites, each of the graph that those before it make. O(rewrites times size).

        Raises:
            RewriteError: one of them is not legal.
        """
        later = replay(self.graph, registry, rewrites, RULES)
        return Variant((*self.labels, *labels), (*self.rewrites, *rewrites), self.edited.then(later))

    def then_all(self, registry: OpRegistry, rewrites: Sequence[Rewrite], *labels: str) -> Variant:
        """With more rewrites, all of them of this graph, about different nodes. O(rewrites times size).

        Raises:
            RewriteError: one of them is not legal.
        """
        made, here = self, Edited.unchanged(self.graph)
        for rewrite in rewrites:
            moved = rewrite.moved(here)
            assert moved is not None, "a rewrite of other nodes took a node away"
            later = replay(made.graph, registry, [moved], RULES)
            here = here.then(later)
            made = Variant(self.labels, (*made.rewrites, moved), made.edited.then(later))
        return Variant((*self.labels, *labels), made.rewrites, made.edited)
