"""Weights of a model: what the caller holds all the time, and what depends on nothing else."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node
from neaptide.ir.values import Kind

AT_EACH_RUN: Final = "neaptide_at_each_run"
"""The keyword argument of a node whose results nobody can work out before, though its operands are weights."""


def folded_values(graph: Graph) -> frozenset[int]:
    """Values that are weights: inputs on storages of kind `PARAMETER`, and what pure nodes make of weights alone.

    A node without operands makes a weight too. Whoever writes a file of the graph works their numbers out once, but for a
    node that says `AT_EACH_RUN`. O(size).
    """
    return graph.remembered(_folded_values)


def folded_storages(graph: Graph) -> dict[int, int]:
    """No bytes for each storage that holds a weight: the sizes to hand to whatever counts a footprint. O(size)."""
    storages = {graph.values[value].storage for value in folded_values(graph)}
    return dict.fromkeys(sorted(s for s in storages if s is not None), 0)


def is_folded(node: Node, weights: Collection[int]) -> bool:
    """Whether a node makes weights, of values that are."""
    is_once = node.effects.is_pure and not node.regions and node.kwarg(AT_EACH_RUN) is None
    return is_once and all(value in weights for value in node.inputs)


def _folded_values(graph: Graph) -> frozenset[int]:
    found: set[int] = set()
    for value in graph.inputs:
        storage = graph.values[value].storage
        if storage is not None and graph.storages[storage].kind is Kind.PARAMETER:
            found.add(value)
    for node in graph.nodes:
        if is_folded(node, found):
            found.update(node.outputs)
    return frozenset(found)
