"""Executions whose results nobody reads before the node runs again: the later one can be the first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from neaptide.ir.dependencies import needed_inputs
from neaptide.ir.graph import Graph


def without_unread_runs(graph: Graph, sequence: Sequence[int]) -> tuple[int, ...]:
    """A legal sequence without such executions: legal, with a peak and a time that are no higher. O(its length).

    What overwrites a storage stays where it is.
    """
    left, read, kept = Counter(sequence), set(graph.outputs), []
    for number in reversed(sequence):
        node = graph.nodes[number]
        if left[number] > 1 and not node.effects.writes and read.isdisjoint(node.outputs):
            left[number] -= 1
            continue
        kept.append(number)
        read.difference_update(node.outputs)
        read.update(needed_inputs(graph, node))
    return tuple(reversed(kept))
