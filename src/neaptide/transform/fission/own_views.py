"""Views that a region must have for itself: what they show has parts, and they themselves are scattered.

A view that joins dims of which the inner one is the axis, as the tokens of a batch, has a part in several places: it cannot be
handed over in parts. What it shows can. So the region makes the view itself.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from neaptide.analysis.alias import is_pure_view
from neaptide.analysis.axes.lines import Lines
from neaptide.ir.axes import Along
from neaptide.ir.edit import Edited
from neaptide.ir.graph import Graph
from neaptide.ir.registry import OpRegistry
from neaptide.transform.again import Again


def own_views(
    graph: Graph, registry: OpRegistry, members: Collection[int], handed: Mapping[int, Along], length: int
) -> tuple[Again | None, dict[int, Along]] | None:
    """The views that a region is to make for itself, and what it is then handed in parts; None where that cannot be.

    Args:
        graph: where the region is.
        registry: what its operations mean.
        members: the region.
        handed: by value that is handed to it in parts, where the axis lies.
        length: of the axis.
    """
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
    """What runs again for a group: right in front of its first user.

    Args:
        group: of a rewrite that makes it again.
        now: by node before that, the node behind it.
    """
    return range(0) if group is None else range(now[group.users[0]] - len(group.nodes), now[group.users[0]])


def with_own_views(
    edited: Edited, members: Collection[int], seeds: Mapping[int, Along], own: Again | None
) -> tuple[frozenset[int], dict[int, Along]]:
    """A region in the graph in which its own views were made again: its members, and what it is handed in parts."""
    now = {old: new for new, old in enumerate(edited.node_of) if old >= 0}
    values = {old: new for new, old in enumerate(edited.value_of) if old >= 0}
    there = frozenset(now[number] for number in members)
    return there.union(copies(own, now)), {values[value]: along for value, along in seeds.items()}
