"""A state of MAGIS's search as a rewritten graph with a schedule, so that the checkers of any other plan can look at it.

Nodes are found again by what an edit says became of them; in bodies, where values keep their names, by these.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from neaptide.errors import RewriteError
from neaptide.ir.edits.edit import Edited
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node
from neaptide.ir.registry import OpRegistry
from neaptide.ir.schedule import Offload, Schedule
from neaptide.transform.rewrite import Rewrite, apply_rewrite
from neaptide.transform.rules import RULES
from neaptide.transform.rules.fission import fission
from neaptide_corpus.recorded_steps import RecordedStep
from neaptide_peers.magis.captured_flat import made_views
from neaptide_peers.magis.f_tree import FTree
from neaptide_peers.magis.recorded_flat import recorded_flat_step
from neaptide_peers.magis.simulate import Simulator
from neaptide_peers.magis.state import Again, State
from neaptide_peers.magis.views_again import views_again


@dataclass(frozen=True, slots=True)
class CarriedOut:
    """What a state comes to.

    Attributes:
        edited: the step with its regions in parts as loops.
        rewrites: that made it.
        schedule: with recomputations and offloads.
        standing: by node of the graph, the node of the step that it is, of a loop the last member of its region; -1 for
            others.
    """

    edited: Edited
    rewrites: tuple[Rewrite, ...]
    schedule: Schedule
    standing: tuple[int, ...]

    @property
    def graph(self) -> Graph:
        """After the rewrites."""
        return self.edited.graph


def carry_out(step: RecordedStep, tree: FTree, state: State) -> CarriedOut:
    """The graph and the schedule of a state of a recorded step. O(regions in parts times size).

    Args:
        step: the recorded step.
        tree: its F-tree.
        state: of a search on it.

    Raises:
        RewriteError: a region cannot run in parts after all.
    """
    made = carry_out_moves(step.graph, step.registry, tree, state)
    return replace(made, schedule=_with_offloads(step, tree, state, made.graph, made.schedule))


def carry_out_moves(graph: Graph, registry: OpRegistry, tree: FTree, state: State) -> CarriedOut:
    """The graph and the schedule of a state without offloads. O(regions in parts times size).

    Args:
        graph: of the step.
        registry: what its operations mean.
        tree: its F-tree.
        state: of a search on it.

    Raises:
        RewriteError: a region cannot run in parts after all.
    """
    carrying = _Carrying(graph, registry, tree, dict(state.parts))
    for index in sorted(carrying.chosen, key=lambda k: (len(list(tree.around(k))), k)):
        carrying.run_in_parts(index)
    body, regions = (
        _Level(carrying.edited.graph, carrying.edited.node_of),
        frozenset(range(len(tree.regions))),
    )
    schedule = carrying.schedule(body, regions, state.again)
    standing = tuple(carrying.standing(body, carrying.inside(regions)))
    return CarriedOut(carrying.edited, tuple(carrying.rewrites), schedule, standing)


@dataclass(frozen=True, slots=True)
class _Level:
    """A graph or a body: by node of it, that of the step, or -1."""

    graph: Graph
    known: Sequence[int]


class _Carrying:
    """The rewrites of some regions in parts on their way."""

    def __init__(self, step: Graph, registry: OpRegistry, tree: FTree, chosen: Mapping[int, int]) -> None:
        self.step, self.registry, self.tree, self.chosen = step, registry, tree, chosen
        self.number = {step.values[v].name: node.id for node in step.nodes for v in node.outputs[:1]}
        self.edited = Edited.unchanged(step)
        self.rewrites: list[Rewrite] = []

    def run_in_parts(self, index: int) -> None:
        """Make a loop of a region, those around it being loops already."""
        rewrite = self._rewrite(index)
        later = apply_rewrite(self.edited.graph, self.registry, rewrite, RULES)
        self.edited = self.edited.then(later)
        self.rewrites.append(rewrite)

    def _rewrite(self, index: int) -> Rewrite:
        region = self.tree.regions[index]
        around = [k for k in self.tree.around(index) if k in self.chosen]
        path, level = list[int](), _Level(self.edited.graph, self.edited.node_of)
        for _ in around:
            loop = self._loop_with(level.graph, region.members)
            path.append(loop.id)
            level = self._body(loop)
        members, seeds = [], {}
        for node, known in zip(level.graph.nodes, level.known, strict=True):
            if known in region.members and not node.regions:
                members.append(node.id)
                for here, there in zip(node.inputs, self.step.nodes[known].inputs, strict=True):
                    if there in region.seeds:
                        seeds[here] = region.seeds[there]
        shared = math.prod(self.chosen[k] for k in around if self.tree.regions[k].axis == region.axis)
        made = fission(
            level.graph, members, length=region.length // shared, parts=self.chosen[index], inputs=seeds
        )
        return replace(made, within=tuple(path))

    def _loop_with(self, graph: Graph, members: frozenset[int]) -> Node:
        """The loop of a graph that some nodes of the step are in."""
        for node in graph.nodes:
            if node.regions and any(known in members for known in self._inside(node)):
                return node
        raise RewriteError("nothing of the region is in the loop around it")

    def _body(self, loop: Node) -> _Level:
        body = loop.regions[0].body
        names = (body.values[node.outputs[0]].name if node.outputs else "" for node in body.nodes)
        return _Level(body, [self.number.get(name, -1) for name in names])

    def _inside(self, loop: Node) -> Iterator[int]:
        """Nodes of the step that are in the body of a loop, or in a body inside it."""
        level = self._body(loop)
        for node, known in zip(level.graph.nodes, level.known, strict=True):
            if node.regions:
                yield from self._inside(node)
            elif known >= 0:
                yield known

    def schedule(self, level: _Level, regions: frozenset[int], again: frozenset[Again]) -> Schedule:
        """Program order, in bodies too, with recomputations directly before their users.

        Args:
            level: the graph, or a body.
            regions: that may be loops in it, or in bodies inside it.
            again: all recomputations.
        """
        inside = self.inside(regions)
        standing = self.standing(level, inside)
        here: dict[int, int] = {}  # by node of the step, that of this level
        bodies = {}
        for node, known in zip(level.graph.nodes, level.known, strict=True):
            if node.regions:
                index = self._region(node, inside)
                inner = self.schedule(self._body(node), frozenset(self.tree.inside(index)), again)
                if inner != Schedule.program_order(node.regions[0].body):
                    bodies[node.id] = inner
            elif known >= 0 and known not in inside:
                here[known] = node.id
        wanted: dict[int, list[int]] = {}
        for made, user in sorted(again):
            if made in here:
                wanted.setdefault(user, []).append(here[made])
        return Schedule.from_nodes(level.graph, _sequence(level.graph, standing, wanted), bodies)

    def inside(self, regions: frozenset[int]) -> dict[int, int]:
        """By node of the step that is in a region in parts, the outermost of some regions that it is in."""
        outermost = [
            k
            for k in self.chosen
            if k in regions and self.chosen.keys().isdisjoint(regions.intersection(self.tree.around(k)))
        ]
        return {node: k for k in outermost for node in self.tree.regions[k].members}

    def standing(self, level: _Level, inside: Mapping[int, int]) -> list[int]:
        """By node of a level, the node of the step that stands for it; -1 where none does.

        A view at the border of a region stays outside its loop, and nothing runs again for it.
        """
        return [
            max(self.tree.regions[self._region(node, inside)].members)
            if node.regions
            else (-1 if known in inside else known)
            for node, known in zip(level.graph.nodes, level.known, strict=True)
        ]

    def _region(self, loop: Node, inside: Mapping[int, int]) -> int:
        """The region that a loop runs in parts."""
        return next(inside[n] for n in self._inside(loop) if n in inside)


def _sequence(graph: Graph, standing: Sequence[int], wanted: Mapping[int, Sequence[int]]) -> list[int]:
    """Program order of a graph with what runs again, and the views of that, in front of their users."""
    if not wanted:
        return list(range(len(graph.nodes)))
    views = made_views(graph)
    sequence: list[int] = []
    runs_at = {node: position for position, user in enumerate(standing) for node in wanted.get(user, ())}
    for position, user in enumerate(standing):
        for node in wanted.get(user, ()):
            shown = views_again(
                views[node],
                lambda view: view < position,  # noqa: B023 - called at once
                lambda later: later >= position or runs_at.get(later, -1) >= position,  # noqa: B023 - likewise
            )
            sequence += [node, *shown]
        sequence.append(position)
    return sequence


def _with_offloads(
    step: RecordedStep, tree: FTree, state: State, graph: Graph, schedule: Schedule
) -> Schedule:
    """The schedule with the offloads of a state."""
    value_of = {value.name: value for value in graph.values}
    running = [graph.nodes[one.target] for one in schedule.node_steps()]
    made = []
    for offload in Simulator(recorded_flat_step(step), tree).offloads(state):
        storage = value_of[step.graph.values[offload.tensor].name].storage
        assert storage is not None
        creations = sum(
            storage in graph.created_storages(node) for node in running[: offload.store_after + 1]
        )
        made.append(
            Offload(
                storage,
                creations - 1,
                offload.store_after,
                offload.gone_after,
                offload.load_before,
                offload.needed,
            )
        )
    return schedule.with_offloads(made) if made else schedule
