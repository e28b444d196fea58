"""Regions of amplifiers and of their twins, in the graph in which the twins make again what is wide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from neaptide.analysis.alias import is_pure_view
from neaptide.ir.edit import Edited
from neaptide.ir.graph import Graph
from neaptide.transform.fission.amplifiers import Amplifier
from neaptide.transform.fission.candidates import Candidate, RegionFinder
from neaptide.transform.fission.own_views import copies
from neaptide.transform.rewrite import Rewrite
from neaptide.transform.rules.made_again import made_again

# Of the bytes that are wide in an amplifier, those that must have parts.
_MOST_OF_IT = 0.9


def twins_apart(family: Sequence[Amplifier]) -> Rewrite | None:
    """The rewrite that has each twin make again what it needs of its amplifier; None where they need nothing."""
    groups = [group for made in family for group in (made.own, made.again) if group is not None]
    return made_again(groups) if groups else None


def amplified(
    finder: RegionFinder, edited: Edited, family: Sequence[Amplifier], dim: int
) -> tuple[tuple[Candidate, ...] | None, ...]:
    """By amplifier of a family, its region and that of its twin along a dim of what is made wider; None where there are none.

    O(size of the graph, by region).
    """
    now = {old: new for new, old in enumerate(edited.node_of) if old >= 0}
    values = {old: new for new, old in enumerate(edited.value_of) if old >= 0}
    return tuple(_regions(finder, made, now, values[made.narrow], dim) for made in family)


def _regions(
    finder: RegionFinder, made: Amplifier, now: Mapping[int, int], narrow: int, dim: int
) -> tuple[Candidate, ...] | None:
    """The region of one amplifier and that of its twin along a dim; None where what is wide has no parts."""
    own = copies(made.own, now)
    forward = finder.found("amplifier", [*own, *(now[n] for n in made.forward)], narrow, dim)
    if forward is None or forward.nbytes < _MOST_OF_IT * made.nbytes:
        return None
    if made.again is None:
        return (forward,)
    again = copies(made.again, now)
    twin = finder.found("amplifier", [*again, *(now[n] for n in made.twin)], narrow, dim)
    if twin is None or not all(n in twin.members or _is_whole(finder.graph, n, twin.members) for n in again):
        return None
    return forward, twin


def _is_whole(graph: Graph, number: int, members: AbstractSet[int]) -> bool:
    """Whether a node is a view of what no member makes: of what is handed over whole, as keys are to scores."""
    node = graph.nodes[number]
    makers = (graph.producer(value) for value in node.inputs)
    return is_pure_view(graph, node) and members.isdisjoint(maker for maker in makers if maker is not None)
