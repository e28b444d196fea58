"""Which nodes of a stretch can run as one loop: those that no way leads back to through a node outside."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from neaptide.ir.dependencies import predecessors
from neaptide.ir.graph import Graph

# What members need complete is made in front of the loop where it takes at most this share of the bytes they make.
_LIGHT = 0.05


def convex_members(graph: Graph, wanted: Collection[int], sizes: Sequence[int]) -> frozenset[int]:
    """The largest part of some nodes found that one loop can stand for. O(size of the graph, times cones made outside).

    Some nodes outside need results of the loop, so they run behind it; a node that needs one of those cannot be in it.
    Where such a result follows from little, as the number of labels that count, all that it follows from is left in front
    of the loop: it is made whole, once. Otherwise the node that needs it stays outside, with all that follows from it.

    Args:
        graph: the program.
        wanted: nodes that may run in parts.
        sizes: bytes by storage.
    """
    before = predecessors(graph)
    members = set(wanted)
    while True:
        behind = _behind(members, before)
        light = _LIGHT * sum(_made_bytes(graph, node, sizes) for node in members)
        for node in sorted(behind[0]):
            cone = _cone(node, members, before)
            if sum(_made_bytes(graph, inner, sizes) for inner in cone) <= light:
                members -= cone
                break
        else:
            return frozenset(members - behind[1])


def _behind(members: Collection[int], before: Sequence[Sequence[int]]) -> tuple[set[int], set[int]]:
    """Nodes outside that a member needs and that need a member; and members that cannot run before those have."""
    late: set[int] = set()  # need a member, and are outside or need one that is late
    wanted: set[int] = set()
    blocked: set[int] = set()
    for node, earlier in enumerate(before):
        if node in members:
            found = late.intersection(earlier)
            if found:
                wanted |= found - blocked
                blocked.add(node)
                late.add(node)
        elif any(other in members or other in late for other in earlier):
            late.add(node)
    return wanted, blocked


def _cone(node: int, members: Collection[int], before: Sequence[Sequence[int]]) -> set[int]:
    """Members that a node follows from."""
    found: set[int] = set()
    seen = {node}
    stack = [node]
    while stack:
        for other in before[stack.pop()]:
            if other not in seen:
                seen.add(other)
                stack.append(other)
                if other in members:
                    found.add(other)
    return found


def _made_bytes(graph: Graph, node: int, sizes: Sequence[int]) -> int:
    return sum(sizes[storage] for storage in graph.created_storages(graph.nodes[node]))
