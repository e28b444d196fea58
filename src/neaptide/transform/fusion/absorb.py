"""What a group computes for itself, instead of keeping the results from when they were made first.

A backward kernel that is handed five results of one forward kernel, all made of one activation, is handed the activation
and computes the five on the way: arithmetic that waits for memory costs nothing. A loss needs no copy of its logits for
that reason. PyTorch decides the same by a cut with the fewest bytes, over all of the graph (`_functorch/partitioners.py`);
here each group decides alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from neaptide.ir.nodes import Node
from neaptide.transform.fusion.members import Members, places_in


class Absorbing:
    """Chooses copies for the groups of a graph; `groups` are all of them: nodes and place."""

    def __init__(self, members: Members, groups: Sequence[tuple[Sequence[int], int]]) -> None:
        self.members, self.graph = members, members.graph
        self.place = places_in(groups, len(self.graph.nodes))
        self.given = set(self.graph.input_storages()) | set(self.graph.output_storages())
        self.last_use: dict[int, list[int]] = {}  # by storage, nodes that need its bytes
        for node in self.graph.nodes:
            for access in node.effects.reads:
                self.last_use.setdefault(access.storage, []).append(node.id)

    def copies_of(self, nodes: Sequence[int], place: int) -> tuple[int, ...]:
        """Nodes that a group had better compute again, ascending: the bytes that it is handed are then the fewest found."""
        inside, copies = set(nodes), set[int]()
        space = max(self.members.space(self.graph.nodes[node]) for node in nodes)
        handed = self._handed(nodes, inside)
        best: tuple[int, tuple[int, ...]] = self._bytes(handed, inside, place), ()
        current = best[0]
        refused: set[int] = set()
        while True:
            makers = {self.graph.producer(value) for value in handed} - refused - {None}
            node = max((n for n in makers if n is not None), default=None)
            if node is None:
                break
            made = self.graph.nodes[node]
            if self._may_copy(made, place, space):
                wider = self._handed((*nodes, *copies, node), inside | copies | {node})
                nbytes = self._bytes(wider, inside | copies | {node}, place)
                if nbytes <= current:
                    copies.add(node)
                    handed, current = wider, nbytes
                    if nbytes < best[0]:
                        best = nbytes, tuple(sorted(copies))
                    continue
            refused.add(node)
        return best[1]

    def _handed(self, nodes: Iterable[int], inside: set[int]) -> set[int]:
        """Values from outside, without views, that nodes are called with."""
        users = [self.graph.nodes[node] for node in nodes]
        bases = (self.members.base(value, user) for user in users for value in user.inputs)
        return {value for value in bases if self.graph.producer(value) not in inside}

    def _bytes(self, values: Iterable[int], inside: set[int], place: int) -> int:
        """Bytes that are kept for a group: of storages that nobody else needs from its place on."""
        storages = {self.graph.values[value].storage for value in values} - {None}
        return sum(
            self.graph.storages[storage].nbytes.constant_value()
            for storage in storages
            if storage is not None
            and storage not in self.given
            and not any(
                self.place[user] >= place and user not in inside for user in self.last_use.get(storage, ())
            )
        )

    def _may_copy(self, node: Node, place: int, space: int) -> bool:
        """Whether a group may compute a node again: it gives the same there, and goes through no more elements."""
        members = self.members
        if not node.effects.is_pure or members.objection(node) is not None or members.space(node) > space:
            return False
        if self.place[node.id] == place:
            return False
        made = self.graph.created_storages(node)
        if not made or any(self.graph.values[v].storage not in made for v in node.outputs):
            return False
        return not any(members.written.get(storage) for storage in made) and not any(
            writer > node.id and self.place[writer] <= place
            for access in node.effects.reads
            for writer in members.written.get(access.storage, ())
        )
