"""Which nodes of a stretch can run as one loop: those that no way leads back to through a node outside."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from neaptide.ir.dependencies import predecessors
from neaptide.ir.graph import Graph

# What members need complete is made in front of the loop where it takes at most this share of the bytes they make.
_LIGHT = 0.05
_NONE: frozenset[int] = frozenset()


def convex_members(
    graph: Graph,
    wanted: Collection[int],
    complete: Mapping[int, Collection[int]],
    sizes: Sequence[int],
) -> frozenset[int]:
    """A part of some nodes, as large as found, that one loop can stand for.

    O(nodes from the first to the last wanted one, times cones made outside).

    A node outside that needs results of the loop runs after it, and a node that needs one of those cannot be in it.
    Neither can one that needs a sum over all parts. Where such a result follows from little, as the number of labels that
    count, all that it follows from is left in front of the loop: it is made whole, once. Otherwise the node that needs it
    stays outside, with all that follows from it.

    Members need not be connected: pieces without a value in common run one after the other in each part, and each makes what
    it would make alone.

    Args:
        complete: by node, the nodes whose results it needs complete although they may run in parts.
    """
    made = {n: sum(sizes[storage] for storage in graph.created_storages(graph.nodes[n])) for n in wanted}
    return _Choice(set(wanted), complete, made, predecessors(graph)).made()


@dataclass
class _Choice:
    """The arguments of `convex_members`; `made_bytes` are what each wanted node makes."""

    members: set[int]
    complete: Mapping[int, Collection[int]]
    made_bytes: Mapping[int, int]
    before: Sequence[Sequence[int]]

    def made(self) -> frozenset[int]:
        nbytes = sum(self.made_bytes[node] for node in self.members)
        while True:
            needed, blocked = self._conflicts()
            cones = (self._cone(node, _LIGHT * nbytes) for node in sorted(needed))
            cone = next((c for c in cones if c is not None), None)
            if cone is None:
                return frozenset(self.members - blocked)
            self.members -= cone
            nbytes -= self._all_made(cone)

    def _conflicts(self) -> tuple[set[int], set[int]]:
        """Nodes that a member needs complete and that need a member, or are one; and members that cannot be members."""
        late: set[int] = set()  # cannot run before the loop ends
        needed: set[int] = set()
        blocked: set[int] = set()
        # Before the first member nothing can be late, and after the last one it does not matter.
        for node in range(min(self.members, default=0), max(self.members, default=-1) + 1):
            earlier = self.before[node]
            if node in self.members:
                found = late.intersection(earlier)
                found |= self.members.intersection(self.complete.get(node, _NONE))
                if found:
                    needed |= found - blocked
                    blocked.add(node)
                    late.add(node)
            elif any(other in self.members or other in late for other in earlier):
                late.add(node)
        return needed, blocked

    def _cone(self, node: int, most_bytes: float) -> set[int] | None:
        """Members that a node follows from, itself among them; None where they make more than so many bytes."""
        found = self.members & {node}
        nbytes = self._all_made(found)
        seen = {node}
        stack = [node]
        while stack and nbytes <= most_bytes:
            for other in self.before[stack.pop()]:
                if other not in seen:
                    seen.add(other)
                    stack.append(other)
                    if other in self.members:
                        found.add(other)
                        nbytes += self.made_bytes[other]
        return found if nbytes <= most_bytes else None

    def _all_made(self, nodes: Collection[int]) -> int:
        return sum(self.made_bytes[node] for node in nodes)
