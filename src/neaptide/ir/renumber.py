"""Renumbering of values and storages: the same graph under other ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Access, Node


def renumbered(
    graph: Graph, value_order: Sequence[int] | None = None, storage_order: Sequence[int] | None = None
) -> Graph:
    """The graph whose value `i` is the old value `value_order[i]`, and likewise for storages. O(size).

    Args:
        graph: to renumber; it is not changed.
        value_order: a permutation of the value ids; None keeps them.
        storage_order: a permutation of the storage ids; None keeps them.
    """
    values_by_new = list(range(len(graph.values))) if value_order is None else list(value_order)
    storages_by_new = list(range(len(graph.storages))) if storage_order is None else list(storage_order)
    value_id = {old: new for new, old in enumerate(values_by_new)}
    storage_id = {old: new for new, old in enumerate(storages_by_new)}

    def moved(accesses: tuple[Access, ...]) -> tuple[Access, ...]:
        return tuple(Access(storage_id[a.storage], a.version) for a in accesses)

    def moved_node(node: Node) -> Node:
        return replace(
            node,
            inputs=tuple(value_id[v] for v in node.inputs),
            outputs=tuple(value_id[v] for v in node.outputs),
            effects=replace(node.effects, reads=moved(node.effects.reads), writes=moved(node.effects.writes)),
        )

    values = []
    for new, old in enumerate(values_by_new):
        value = graph.values[old]
        storage = None if value.storage is None else storage_id[value.storage]
        values.append(replace(value, id=new, storage=storage))
    return replace(
        graph,
        nodes=tuple(moved_node(node) for node in graph.nodes),
        values=tuple(values),
        storages=tuple(replace(graph.storages[old], id=new) for new, old in enumerate(storages_by_new)),
        inputs=tuple(value_id[v] for v in graph.inputs),
        outputs=tuple(value_id[v] for v in graph.outputs),
    )
