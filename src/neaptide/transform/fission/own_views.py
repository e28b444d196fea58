"""Views that a region must have for itself: what they show has parts, and they themselves are scattered.

A view that joins dims of which the inner one is the axis, as the tokens of a batch, has a part in several places: it cannot be
handed over in parts. What it shows can. So the region makes the view itself.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from neaptide.analysis.alias import is_pure_view
from neaptide.analysis.axes.lines import Lines
from neaptide.ir.axes import Along
from neaptide.ir.edit import Edited
from neaptide.ir.graph import Graph
from neaptide.ir.registry import OpRegistry


@dataclass(frozen=True, slots=True)
class Again:
    """Some nodes, and the later ones that are to use what a second run of them makes.

    Attributes:
        nodes: that run again, ascending.
        users: behind them, ascending; the copies run right before the first.
    """

    nodes: tuple[int, ...]
    users: tuple[int, ...]


def own_views(
    graph: Graph, registry: OpRegistry, members: Collection[int], handed: Mapping[int, Along], length: int
) -> tuple[Again | None, dict[int, Along]] | None:
    """The views that a region is to make for itself, and what it is then handed in parts; None where that cannot be."""
    lines = Lines(graph, registry, length)
    views: set[int] = set()
    seeds: dict[int, Along] = {}
    waiting = dict(handed)
    while waiting:
        value, along = waiting.popitem()
        if along.outer == 1:
            if seeds.setdefault(value, along) != along:
                return None
            continue
        producer = graph.producer(value)
        if producer is None or not is_pure_view(graph, graph.nodes[producer]):
            return None
        node = graph.nodes[producer]
        line = lines.find(node, {}, {}, {node.outputs.index(value): along})
        if line is None:
            return None
        views.add(producer)
        waiting.update({node.inputs[slot]: lies for slot, lies in line.operands.items()})
    if not views:
        return None, seeds
    results = {value for number in views for value in graph.nodes[number].outputs}
    users = sorted(n for n in members if not results.isdisjoint(graph.nodes[n].inputs))
    return None if max(views) > users[0] else (Again(tuple(sorted(views)), tuple(users)), seeds)


def copies(group: Again | None, now: Mapping[int, int]) -> range:
    """What runs again for a group: right in front of its first user."""
    return range(0) if group is None else range(now[group.users[0]] - len(group.nodes), now[group.users[0]])


def with_own_views(
    edited: Edited, members: Collection[int], seeds: Mapping[int, Along], own: Again | None
) -> tuple[frozenset[int], dict[int, Along]]:
    """A region in the graph in which its own views were made again: its members, and what it is handed in parts."""
    now = {old: new for new, old in enumerate(edited.node_of) if old >= 0}
    values = {old: new for new, old in enumerate(edited.value_of) if old >= 0}
    there = frozenset(now[number] for number in members)
    return there.union(copies(own, now)), {values[value]: along for value, along in seeds.items()}
