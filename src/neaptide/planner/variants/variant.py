"""A variant: what some rewrites make of a graph, and what was decided on the way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from neaptide.ir.edits.edit import Edited
from neaptide.ir.graph import Graph
from neaptide.ir.registry import OpRegistry
from neaptide.transform.rewrite import Rewrite, replay
from neaptide.transform.rules import RULES


@dataclass(frozen=True, slots=True)
class Decision:
    """One thing that was decided, in terms that mean the same in a graph like this one.

    Attributes:
        label: in words, the number of parts included.
        nbytes: that run in parts; of several regions that the words describe, these are meant.
        names: of the values that it is about, where it is about none of the regions; None where it is.
        is_whole_step: whether the region is all of the step but its updates.
    """

    label: str
    nbytes: int = 0
    names: tuple[str, ...] | None = None
    is_whole_step: bool = False


class Division(Enum):
    """What of a program runs in parts. Predicted times of programs that are divided alike err alike."""

    NOTHING = "nothing in parts"
    WHOLE_STEP = "the whole step in parts"
    REGIONS = "regions in parts"


def division_of(graph: Graph, decisions: Iterable[Decision]) -> Division:
    """What runs in parts in a graph that some decisions made. O(nodes)."""
    if not any(node.regions for node in graph.nodes):
        return Division.NOTHING
    whole = any(decision.is_whole_step for decision in decisions)
    return Division.WHOLE_STEP if whole else Division.REGIONS


@dataclass(frozen=True, slots=True, eq=False)
class Variant:
    """A graph after some rewrites, which are to be replayed from the graph that was captured. No two are equal."""

    decisions: tuple[Decision, ...]
    rewrites: tuple[Rewrite, ...]
    edited: Edited

    @staticmethod
    def captured(graph: Graph) -> Variant:
        """The graph as it is."""
        return Variant((), (), Edited.unchanged(graph))

    @property
    def labels(self) -> tuple[str, ...]:
        """What was done, in words, one for each choice that was taken."""
        return tuple(decision.label for decision in self.decisions)

    @property
    def division(self) -> Division:
        """What runs in parts. O(nodes)."""
        return division_of(self.graph, self.decisions)

    @property
    def label(self) -> str:
        """All that was done, in words."""
        return ", then ".join(self.labels)

    @property
    def graph(self) -> Graph:
        """After the rewrites."""
        return self.edited.graph

    def then(self, registry: OpRegistry, rewrites: Sequence[Rewrite], *decisions: Decision) -> Variant:
        """With more rewrites, each of the graph that those before it make. O(rewrites times size)."""
        later = replay(self.graph, registry, rewrites, RULES)
        return Variant((*self.decisions, *decisions), (*self.rewrites, *rewrites), self.edited.then(later))

    def then_all(self, registry: OpRegistry, rewrites: Sequence[Rewrite], *decisions: Decision) -> Variant:
        """With more rewrites, all of them of this graph, about different nodes. O(rewrites times size)."""
        made, here = self, Edited.unchanged(self.graph)
        for rewrite in rewrites:
            moved = rewrite.moved(here)
            assert moved is not None, "a rewrite of other nodes took a node away"
            later = replay(made.graph, registry, [moved], RULES)
            here = here.then(later)
            made = Variant(self.decisions, (*made.rewrites, moved), made.edited.then(later))
        return Variant((*self.decisions, *decisions), made.rewrites, made.edited)
