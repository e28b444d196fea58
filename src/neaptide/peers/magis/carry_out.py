"""A state of MAGIS's search as a rewritten graph with a schedule, so that the judges of any other plan can look at it.

Values keep their names in graphs and bodies, and by their names nodes are found again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from neaptide.corpus.recorded_steps import RecordedStep
from neaptide.ir.graph import Graph
from neaptide.ir.schedule import HostStay, Schedule
from neaptide.peers.magis.f_tree import FTree
from neaptide.peers.magis.recorded_flat import recorded_flat_step
from neaptide.peers.magis.simulate import Simulator
from neaptide.peers.magis.state import Again, State
from neaptide.transform.rewrite import Rewrite, apply_rewrite
from neaptide.transform.rules import RULES
from neaptide.transform.rules.fission import fission


@dataclass(frozen=True, slots=True)
class CarriedOut:
    """What a state comes to.

    Attributes:
        graph: the step with its regions in parts as loops.
        rewrites: that made it.
        schedule: with recomputations and stays on the host.
    """

    graph: Graph
    rewrites: tuple[Rewrite, ...]
    schedule: Schedule


def carry_out(step: RecordedStep, tree: FTree, state: State) -> CarriedOut:
    """The graph and the schedule of a state. O(regions in parts times size).

    Args:
        step: the recorded step.
        tree: its F-tree.
        state: of a search on it.

    Raises:
        RewriteError: a region cannot run in parts after all.
    """
    graph, rewrites = step.graph, list[Rewrite]()
    chosen = dict(state.parts)
    for index in sorted(chosen, key=lambda k: (len(list(tree.around(k))), k)):
        rewrite = _rewrite(step.graph, graph, tree, chosen, index)
        graph = apply_rewrite(graph, step.registry, rewrite, RULES).graph
        rewrites.append(rewrite)
    schedule = _schedule(_numbers(step.graph), graph, state.again)
    return CarriedOut(graph, tuple(rewrites), _with_stays(step, tree, state, graph, schedule))


def _numbers(graph: Graph) -> dict[str, int]:
    """Nodes of a recorded step by the name of what they make."""
    return {graph.values[node.outputs[0]].name: node.id for node in graph.nodes}


def _rewrite(recorded: Graph, graph: Graph, tree: FTree, chosen: dict[int, int], index: int) -> Rewrite:
    """The rewrite that makes a loop of a region, those around it being loops already."""
    region, number = tree.regions[index], _numbers(recorded)
    around = [k for k in tree.around(index) if k in chosen]
    path, body = [], graph
    for _ in around:
        loop = next(
            node
            for node in body.nodes
            if node.regions and any(k in region.members for k in _members(number, node.regions[0].body))
        )
        path.append(loop.id)
        body = loop.regions[0].body
    members, seeds = [], {}
    for node in body.nodes:
        known = number.get(_name(body, node.outputs), -1)
        if known in region.members and not node.regions:
            members.append(node.id)
            for here, there in zip(node.inputs, recorded.nodes[known].inputs, strict=True):
                if there in region.seeds:
                    seeds[here] = region.seeds[there]
    shared = math.prod(chosen[k] for k in around if tree.regions[k].axis == region.axis)
    made = fission(body, members, length=region.length // shared, parts=chosen[index], inputs=seeds)
    return replace(made, within=tuple(path))


def _name(graph: Graph, outputs: tuple[int, ...]) -> str:
    """The name of what a node makes; empty where it makes nothing of its own."""
    return graph.values[outputs[0]].name if outputs else ""


def _members(number: dict[str, int], body: Graph) -> Iterator[int]:
    """Nodes of the recorded step that are in a body, or in a body inside it."""
    for node in body.nodes:
        if node.regions:
            yield from _members(number, node.regions[0].body)
        elif (known := number.get(_name(body, node.outputs), -1)) >= 0:
            yield known


def _schedule(number: dict[str, int], graph: Graph, again: frozenset[Again]) -> Schedule:
    """Program order, in bodies too, with recomputations directly before their users."""
    here: dict[int, int] = {}  # by node of the recorded step, that of this graph
    standing: list[int] = []  # by node of this graph, the node of the recorded step that stands for it
    for node in graph.nodes:
        if node.regions:
            standing.append(max(_members(number, node.regions[0].body)))
        else:
            known = number.get(_name(graph, node.outputs), -1)
            standing.append(known)
            if known >= 0:
                here[known] = node.id
    wanted: dict[int, list[int]] = {}
    for made, user in sorted(again):
        if made in here:
            wanted.setdefault(user, []).append(here[made])
    sequence = []
    for node, stands_for in zip(graph.nodes, standing, strict=True):
        sequence += [*wanted.get(stands_for, ()), node.id]
    bodies = {node.id: _schedule(number, node.regions[0].body, again) for node in graph.nodes if node.regions}
    return Schedule.from_nodes(graph, sequence, bodies)


def _with_stays(step: RecordedStep, tree: FTree, state: State, graph: Graph, schedule: Schedule) -> Schedule:
    """The schedule with the stays on the host of a state."""
    value_of = {value.name: value for value in graph.values}
    running = [graph.nodes[one.target] for one in schedule.node_steps()]
    made = []
    for stay in Simulator(recorded_flat_step(step), tree).stays(state):
        storage = value_of[step.graph.values[stay.tensor].name].storage
        assert storage is not None
        creations = sum(storage in graph.created_storages(node) for node in running[: stay.store_behind + 1])
        made.append(
            HostStay(
                storage,
                creations - 1,
                stay.store_behind,
                stay.gone_behind,
                stay.load_before,
                stay.needed,
            )
        )
    return schedule.with_stays(made) if made else schedule
