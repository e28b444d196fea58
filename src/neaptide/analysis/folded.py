"""Weights of a model: what the caller holds all the time, and what depends on nothing else."""

from __future__ import annotations

from neaptide.ir.graph import Graph
from neaptide.ir.values import Kind


def folded_values(graph: Graph) -> frozenset[int]:
    """Values that are weights: inputs on storages of kind `PARAMETER`, and what pure nodes make of weights alone.

    A node without operands makes a weight too. Whoever writes a file of the graph works their numbers out once. O(size).
    """
    return graph.remembered(_folded_values)


def folded_storages(graph: Graph) -> dict[int, int]:
    """No bytes for each storage that holds a weight: the sizes to hand to whatever counts a footprint. O(size)."""
    storages = {graph.values[value].storage for value in folded_values(graph)}
    return dict.fromkeys(sorted(s for s in storages if s is not None), 0)


def _folded_values(graph: Graph) -> frozenset[int]:
    found: set[int] = set()
    for value in graph.inputs:
        storage = graph.values[value].storage
        if storage is not None and graph.storages[storage].kind is Kind.PARAMETER:
            found.add(value)
    for node in graph.nodes:
        if node.effects.is_pure and not node.regions and found.issuperset(node.inputs):
            found.update(node.outputs)
    return frozenset(found)
