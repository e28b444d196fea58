"""In which order the nodes and the regions in parts of a level run.

As in the released search: program order. What is new stands next to its use. What is found on a captured program is ordered
anew when it is carried out (`reordered`).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from neaptide.errors import RewriteError
from neaptide_peers.magis.f_tree import FTree
from neaptide_peers.magis.flat_step import FlatStep


def level_items(
    flat: FlatStep, tree: FTree, nodes: frozenset[int], inside: Sequence[int]
) -> list[tuple[int, int]]:
    """The items of a level in running order: (last node, region), with -1 for a single node. O(nodes log nodes).

    A region stands where its last member stood. Nodes in between that need its results follow it.

    Args:
        flat: the step.
        tree: its regions.
        nodes: of the level, members of the regions among them.
        inside: outermost regions of the level that run in parts.

    Raises:
        RewriteError: a way leads from one of the regions through another and back.
    """
    region_of = {node: index for index in inside for node in tree.regions[index].members}
    key = {index: max(tree.regions[index].members) for index in inside}

    def item_of(node: int) -> tuple[int, int]:
        index = region_of.get(node, -1)
        return (node, -1) if index < 0 else (key[index], index)

    waits: dict[tuple[int, int], set[tuple[int, int]]] = {item_of(node): set() for node in nodes}
    followed: dict[tuple[int, int], list[tuple[int, int]]] = {item: [] for item in waits}
    for node in nodes:
        item = item_of(node)
        for before in nodes.intersection(flat.before[node]):
            other = item_of(before)
            if other != item and other not in waits[item]:
                waits[item].add(other)
                followed[other].append(item)
    left = {item: len(found) for item, found in waits.items()}
    ready = [item for item, count in left.items() if not count]
    heapq.heapify(ready)
    order = []
    while ready:
        item = heapq.heappop(ready)
        order.append(item)
        for other in followed[item]:
            left[other] -= 1
            if not left[other]:
                heapq.heappush(ready, other)
    if len(order) < len(waits):
        raise RewriteError("regions in parts wait for one another")
    return order
