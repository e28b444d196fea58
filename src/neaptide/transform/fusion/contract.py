"""Groups of nodes become fused operations: a graph whose inner values are gone, with bytes of nothing but operands and results.

Nothing is believed of the groups: that each may run in its place, and that a copy gives there what the node gave, is checked
against the order that data, writes and segments ask for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from neaptide.errors import RewriteError
from neaptide.ir.edits.edit import Edited, GraphEdit, NodeDraft
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node, Ref
from neaptide.ir.registry import OpRegistry
from neaptide.ops.fused import FUSED_OP
from neaptide.transform.fusion.body import Body
from neaptide.transform.fusion.group import Group
from neaptide.transform.fusion.members import Members, places_in
from neaptide.transform.rewrite import refused


def contract(graph: Graph, registry: OpRegistry, groups: Sequence[Group]) -> Edited:
    """The graph with a fused operation in the place of each group. O(size of the graph and of the groups).

    What only groups needed, such as views that they look through and nodes that they compute for themselves, is gone.

    Raises:
        RewriteError: a node that may not be fused, or a group that has no place there.
    """
    contraction = _Contraction(graph, Members(graph, registry), groups)
    contraction.check()
    return contraction.edited()


@dataclass
class _Contraction:
    graph: Graph
    members: Members
    groups: Sequence[Group]
    group_of: dict[int, int] = field(default_factory=dict)
    place: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        count = len(self.graph.nodes)
        for number, group in enumerate(self.groups):
            for node in (*group.nodes, *group.copies):
                if not 0 <= node < count:
                    raise RewriteError(f"node {node} is none of the {count} of its graph")
            for node in group.nodes:
                if node in self.group_of:
                    raise refused(self.graph.nodes[node], "cannot be in two groups")
                self.group_of[node] = number
        self.place = places_in([(group.nodes, group.place) for group in self.groups], count)

    # -- what is legal

    def check(self) -> None:
        segment_of = [0] * len(self.graph.nodes)
        for number, segment in enumerate(self.graph.segments):
            segment_of[segment.start : segment.end] = [number] * (segment.end - segment.start)
        for group in self.groups:
            inside = {*group.nodes, *group.copies}
            made = [self.graph.nodes[node] for node in sorted(inside)]
            for node in made:
                if (reason := self.members.objection(node)) is not None:
                    raise refused(node, f"cannot be fused: it {reason}")
            if len(inside) < len(group.nodes) + len(group.copies):
                raise refused(made[0], "is a copy in the group that it is in itself")
            if len({self.members.device(node) for node in made}) > 1:
                raise refused(made[0], "cannot be fused with what runs on another device")
            if len({segment_of[node] for node in group.nodes}) > 1:
                raise refused(made[0], "cannot be fused with what runs in another segment")
            for number in group.copies:
                self._check_copy(self.graph.nodes[number], group, inside)
        for node in self.graph.nodes:
            for other in () if self.members.views[node.id] else self.members.before[node.id]:
                is_together = self.group_of.get(other, -1) == self.group_of.get(node.id, -2)
                if self.place[other] >= self.place[node.id] and not is_together:
                    raise refused(node, f"would have to run before node {other}, which it waits for")

    def _check_copy(self, node: Node, group: Group, inside: set[int]) -> None:
        made = self.graph.created_storages(node)
        is_alone = all(self.graph.values[value].storage in made for value in node.outputs)
        if not node.effects.is_pure or not made or not is_alone:
            raise refused(node, "cannot be computed by several: it changes more than its results")
        if any(self.members.written.get(storage) for storage in made):
            raise refused(node, "cannot be computed by several: its result is written into")
        if any(self.place[n] >= group.place for n in self.members.before[node.id] if n not in inside):
            raise refused(node, "cannot be computed where the group is: what it needs is made later")
        for access in node.effects.reads:
            for writer in self.members.written.get(access.storage, ()):
                if writer > node.id and (writer in inside or self.place[writer] <= group.place):
                    raise refused(node, f"gives other numbers once node {writer} has run")

    # -- the change

    def edited(self) -> Edited:
        bodies, gone = self._needed()
        edit = GraphEdit(self.graph)
        for node in sorted(gone):
            edit.remove(node)
        for body in bodies.values():
            self._replace(edit, body)
        for number, group in sorted(bodies.items(), key=lambda pair: self.groups[pair[0]].place):
            self._move_views(edit, self.groups[number].place, group, gone)
        return edit.finish()

    def _needed(self) -> tuple[dict[int, Body], set[int]]:
        """The bodies of the groups that are needed, by group, and the nodes that are gone with them.

        From the last place to the first, so that all users of a result are met before what makes it.
        """
        graph, members = self.graph, self.members
        needed = {storage for v in graph.outputs if (storage := graph.values[v].storage) is not None}
        values = set(graph.outputs)
        suspects = {copy for group in self.groups for copy in group.copies if copy not in self.group_of}
        for group in self.groups:
            for number in (*group.nodes, *group.copies):
                for value in graph.nodes[number].inputs:
                    suspects.update(members.views_of(value, graph.nodes[number]))
        bodies: dict[int, Body] = {}
        gone: set[int] = set()
        by_place = {group.place: number for number, group in enumerate(self.groups)}
        for node in reversed(graph.nodes):
            if (here := by_place.get(node.id)) is not None:
                group = self.groups[here]
                body = Body(members, group, needed)
                if body.is_needed:
                    bodies[here] = body
                    used = body.handed
                    gone.update(n for n in group.nodes if n != group.place)
                else:
                    gone.update(group.nodes)
                    continue
            elif node.id in self.group_of:
                continue
            elif node.id in suspects and not values.intersection(node.outputs):
                gone.add(node.id)
                continue
            else:
                used = node.inputs
            values.update(used)
            needed.update(s for value in used if (s := graph.values[value].storage) is not None)
        return bodies, gone

    def _replace(self, edit: GraphEdit, body: Body) -> None:
        """Put the fused operation in its place; what used other values on its results and operands uses those."""
        group = body.group
        for old, new in body.stand_ins().items():
            edit.replace_uses(old, new)
        handed, made = tuple(body.handed), tuple(body.results)
        draft = NodeDraft(
            FUSED_OP,
            handed,
            made,
            (body.text(), tuple(Ref(slot) for slot in range(len(handed)))),
            writes=tuple(body.written),
            source=self.graph.nodes[group.place].source,
            results=tuple(Ref(slot) for slot in range(len(made))),
        )
        edit.replace_node(group.place, draft)

    def _move_views(self, edit: GraphEdit, place: int, body: Body, gone: set[int]) -> None:
        """Views of its results that stood before the place of a group follow it."""
        made = {self.graph.values[value].storage for value in body.results}
        for node in self.graph.nodes[min(body.group.nodes) : place]:
            is_left = self.members.views[node.id] and node.id not in gone
            if is_left and self.graph.values[node.outputs[0]].storage in made:
                edit.move_after(node.id, place)
