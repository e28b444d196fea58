"""A machine with Python variables that plays a schedule: which storage instances are there at every step.

A name is bound to an object with a reference count, it is deleted behind its last use, and an object whose count falls
to zero is gone. An object that is stored leaves at the `WAIT` for its copy, and is there again from its `LOAD` on.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

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
class Played:
    """What was where.

    Attributes:
        alive: for each step that runs a node, the instances that are there while it runs, beyond those of the caller.
        on_host: for each of these steps, the instances on the host when it begins, and again behind each `STORE`
            between it and the next one.
    """

    alive: list[list[PlayedInstance]]
    on_host: list[list[list[PlayedInstance]]]


def play(graph: Graph, schedule: Schedule) -> Played:
    """Play a legal schedule. O(steps x storages alive)."""
    return _Machine(graph).run(schedule)


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
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.variables: dict[int, PlayedInstance] = {}
        self.alive: dict[int, PlayedInstance] = {}
        self.on_host: dict[int, PlayedInstance] = {}
        self.leaving: set[int] = set()
        self.created: Counter[int] = Counter()
        self.instances: dict[tuple[int, int], PlayedInstance] = {}
        owned = {storage: PlayedInstance(storage, 0, None) for storage in graph.input_storages()}
        for value in graph.inputs:
            storage = graph.values[value].storage
            if storage is not None:
                self._bind(value, owned[storage])

    def run(self, schedule: Schedule) -> Played:
        running = [self.graph.nodes[step.target] for step in schedule.node_steps()]
        upcoming = iter(zip(running, _deletions(self.graph, running), strict=True))
        played = Played([], [])
        for step in schedule.steps:
            if step.moves_bytes:
                self._move(step)
                if step.kind is StepKind.STORE:
                    played.on_host[-1].append(list(self.on_host.values()))
            elif step.runs_node:
                node, deletions = next(upcoming)
                self._execute(node)
                played.alive.append(list(self.alive.values()))
                played.on_host.append([list(self.on_host.values())])
                for value in deletions:
                    if value in self.variables:
                        self._release(self.variables.pop(value))
        return played

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
            self.alive[key] = instance
        elif key in self.leaving:
            self.leaving.remove(key)
            del self.alive[key]
        else:
            del self.on_host[key]

    def _make(self, storage: int, creator: int) -> PlayedInstance:
        instance = PlayedInstance(storage, self.created[storage], creator)
        self.instances[storage, instance.occurrence] = instance
        self.created[storage] += 1
        self.alive[id(instance)] = instance
        return instance

    def _bind(self, value: int, instance: PlayedInstance) -> None:
        instance.references += 1
        if value in self.variables:
            self._release(self.variables[value])
        self.variables[value] = instance

    def _release(self, instance: PlayedInstance) -> None:
        instance.references -= 1
        if instance.references == 0 and instance.creator is not None:
            del self.alive[id(instance)]
