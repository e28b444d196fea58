"""A machine with Python variables that plays a schedule: from which step to which each storage instance is there.

A name is bound to an object with a reference count, it is deleted behind its last use, and an object whose count falls
to zero is gone. An object that is stored leaves at the `WAIT` for its copy, and is there again from its `LOAD` on. One of
the caller's that is loaded before it is stored is on the host from the begin.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from neaptide.analysis.alias import alias_operand
from neaptide.ir.dependencies import needed_inputs
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node
from neaptide.ir.schedule import Schedule, Step, StepKind


@dataclass(slots=True, eq=False)
class PlayedInstance:
    """An instance of a storage, held by `references` names; its `creator` is None when the caller owns it."""

    storage: int
    occurrence: int
    creator: int | None
    references: int = 0


@dataclass(frozen=True, slots=True)
class Presence:
    """An instance that is there while the steps `[start, end)` run, counting those that run nodes."""

    instance: PlayedInstance
    start: int
    end: int


class OnHost(NamedTuple):
    """Instances on the host.

    Attributes:
        position: of the last step that runs a node.
        instances: that are there.
        is_running: whether this is while that step runs, rather than behind it.
    """

    position: int
    instances: list[PlayedInstance]
    is_running: bool


@dataclass(frozen=True, slots=True)
class Played:
    """What was where.

    Attributes:
        presences: of the instances beyond those of the caller. One that was away has another for each return; one that
            goes before a step has seen it is in none.
        of_caller: the same of the caller's storages; without transfers each is there for all steps.
        on_host: what is on the host while a step that runs a node does so, and again behind each `STORE` between it
            and the next one; only where there is anything.
    """

    presences: list[Presence]
    of_caller: list[Presence]
    on_host: list[OnHost]


def play(graph: Graph, schedule: Schedule) -> Played:
    """Play a legal schedule. O(size of the schedule + steps x storages on the host)."""
    return _Machine(graph, schedule.away_at_begin()).run(schedule)


def _deletions(graph: Graph, running: list[Node]) -> list[list[int]]:
    """For each step the names that nothing needs any more behind it, found by walking backwards."""
    wanted_later = {*graph.outputs, *graph.inputs}
    deletions: list[list[int]] = []
    for node in reversed(running):
        gone = [value for value in node.outputs if value not in wanted_later]
        wanted_later.difference_update(node.outputs)
        for value in needed_inputs(graph, node):
            if value not in wanted_later:
                gone.append(value)
                wanted_later.add(value)
        deletions.append(gone)
    return deletions[::-1]


class _Machine:
    def __init__(self, graph: Graph, away: Collection[int]) -> None:
        self.graph = graph
        self.variables: dict[int, PlayedInstance] = {}
        self.there_since: dict[PlayedInstance, int] = {}
        self.presences: list[Presence] = []
        self.position = 0
        self.on_host: dict[int, PlayedInstance] = {}
        self.leaving: set[int] = set()
        self.created: Counter[int] = Counter()
        self.instances: dict[tuple[int, int], PlayedInstance] = {}
        owned = {storage: PlayedInstance(storage, 0, None) for storage in graph.input_storages()}
        for value in graph.inputs:
            storage = graph.values[value].storage
            if storage is not None:
                self._bind(value, owned[storage])
        for storage, instance in owned.items():
            self.instances[storage, 0] = instance
            if storage in away:
                self.on_host[id(instance)] = instance
            else:
                self._come(instance)

    def run(self, schedule: Schedule) -> Played:
        running = [self.graph.nodes[step.target] for step in schedule.node_steps()]
        upcoming = iter(zip(running, _deletions(self.graph, running), strict=True))
        on_host: list[OnHost] = []
        for step in schedule.steps:
            if step.moves_bytes:
                self._move(step)
                if step.kind is StepKind.STORE:
                    on_host.append(OnHost(self.position - 1, list(self.on_host.values()), False))
            elif step.runs_node:
                node, deletions = next(upcoming)
                self._execute(node)
                if self.on_host:
                    on_host.append(OnHost(self.position, list(self.on_host.values()), True))
                self.position += 1
                for value in deletions:
                    if value in self.variables:
                        self._release(self.variables.pop(value))
        for instance in list(self.there_since):
            self._leave(instance)
        made = [presence for presence in self.presences if presence.instance.creator is not None]
        of_caller = [presence for presence in self.presences if presence.instance.creator is None]
        return Played(made, of_caller, on_host)

    def _execute(self, node: Node) -> None:
        graph = self.graph
        fresh = {storage: self._make(storage, node.id) for storage in graph.created_storages(node)}
        results = []
        for value in node.outputs:
            storage = graph.values[value].storage
            if storage is not None:
                seen = fresh.get(storage) or self.variables[alias_operand(graph, node, storage)]
                results.append((value, seen))
        for value, instance in results:
            self._bind(value, instance)

    def _move(self, step: Step) -> None:
        """Begin or end a copy."""
        instance = self.instances[step.target, step.occurrence]
        key = id(instance)
        if step.kind is StepKind.STORE:
            self.on_host[key] = instance
            self.leaving.add(key)
        elif step.kind is StepKind.LOAD:
            self._come(instance)
        elif key in self.leaving:
            self.leaving.remove(key)
            self._leave(instance)
        else:
            del self.on_host[key]

    def _make(self, storage: int, creator: int) -> PlayedInstance:
        instance = PlayedInstance(storage, self.created[storage], creator)
        self.instances[storage, instance.occurrence] = instance
        self.created[storage] += 1
        self._come(instance)
        return instance

    def _come(self, instance: PlayedInstance) -> None:
        self.there_since[instance] = self.position

    def _leave(self, instance: PlayedInstance) -> None:
        start = self.there_since.pop(instance)
        if start < self.position:
            self.presences.append(Presence(instance, start, self.position))

    def _bind(self, value: int, instance: PlayedInstance) -> None:
        instance.references += 1
        if value in self.variables:
            self._release(self.variables[value])
        self.variables[value] = instance

    def _release(self, instance: PlayedInstance) -> None:
        instance.references -= 1
        if instance.references == 0 and instance.creator is not None:
            self._leave(instance)
