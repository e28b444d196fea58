"""Groups by a greedy search in program order: a node joins the groups that it waits for where all still have a place to run.

A group runs in the place of one of its nodes: after everything that it waits for, before everything that waits for it. No
other node has to move for it, so program order stays what it was, and bytes that are needed at once are so still.
Kernels go through equal numbers of elements (Inductor's rule for fusing along a loop), or through the rows of what they
go through.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from neaptide.ir.graph import Graph
from neaptide.ir.registry import OpRegistry
from neaptide.transform.fusion.absorb import Absorbing
from neaptide.transform.fusion.group import Group
from neaptide.transform.fusion.members import Members

_MOST_NODES: Final = 64
"""As many operations as Inductor puts into a kernel (`config.max_fusion_size`)."""


@dataclass
class _Growing:
    """A group on its way."""

    nodes: set[int]
    place: int
    space: int
    kind: tuple[str, str, int]
    rows: set[int] = field(default_factory=set)


def find_groups(graph: Graph, registry: OpRegistry) -> tuple[Group, ...]:
    """Groups that may run together, in program order. O(size of the graph, times the nodes of a group)."""
    members = Members(graph, registry)
    grown = _Search(members).run()
    absorbing = Absorbing(members, [(sorted(group.nodes), group.place) for group in grown])
    found = []
    for group in grown:
        copies = absorbing.copies_of(sorted(group.nodes), group.place)
        made = Group(tuple(sorted(group.nodes)), group.place, copies)
        if len(group.nodes) + len(copies) > 1 and not members.is_seen_twice(made.nodes):
            found.append(made)
    return tuple(found)


class _Search:
    def __init__(self, members: Members) -> None:
        self.members, self.graph = members, members.graph
        self.group_of: dict[int, _Growing] = {}
        self.place = list(range(len(self.graph.nodes)))
        self.segment_of = [0] * len(self.graph.nodes)
        for number, segment in enumerate(self.graph.segments):
            for node in range(segment.start, segment.end):
                self.segment_of[node] = number

    def run(self) -> list[_Growing]:
        members = self.members
        for node in self.graph.nodes:
            if members.objection(node) is not None:
                continue
            kind = members.device(node), node.source.phase, self.segment_of[node.id]
            here = _Growing({node.id}, node.id, members.space(node), kind, members.rows(node))
            self.group_of[node.id] = here
            waits_for = {id(g): g for other in members.before[node.id] if (g := self.group_of.get(other))}
            for group in sorted(waits_for.values(), key=lambda g: -g.place):
                self._join(here, group)
        return list({id(group): group for group in self.group_of.values()}.values())

    def _join(self, here: _Growing, group: _Growing) -> None:
        """Put a group that a newer one waits for into that, where both fit."""
        fits = here.space == group.space or (here.space in group.rows and len(here.nodes) == 1)
        if here.kind != group.kind or not fits or len(here.nodes) + len(group.nodes) > _MOST_NODES:
            return
        nodes = here.nodes | group.nodes
        if self.members.is_seen_twice(nodes):
            return
        place = self._place_of(nodes)
        if place is None:
            return
        here.nodes, here.place = nodes, place
        here.space, here.rows = group.space, here.rows | group.rows
        for node in nodes:
            self.group_of[node] = here
            self.place[node] = place

    def _place_of(self, nodes: Collection[int]) -> int | None:
        """The last node in whose place all of them may run; None where there is none."""
        before, after = self.members.before, self.members.after
        begin = max((self.place[n] for node in nodes for n in before[node] if n not in nodes), default=-1)
        end = min(
            (self.place[n] for node in nodes for n in after[node] if n not in nodes),
            default=len(self.place),
        )
        return max((node for node in nodes if begin < node < end), default=None)
