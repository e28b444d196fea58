"""Lifetimes under a schedule: which name holds which bytes from which step to which, on the device and on the host.

Positions count node steps only (0 is the first step that runs a node); ranges are half-open, `[start, end)`.
A name that dies after the step at position p has `end == p + 1`: during p it is still there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from neaptide.analysis.alias import alias_operand
from neaptide.ir.dependencies import needed_inputs
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node
from neaptide.ir.schedule import Schedule, Step, StepKind


@dataclass(slots=True)
class Binding:
    """One span of a name, from its definition to one past the last step that needs it before the next one.

    `instance` is an index in `Liveness.instances`; None for a host scalar.
    """

    value: int
    occurrence: int
    instance: int | None
    start: int
    end: int


@dataclass(slots=True)
class Instance:
    """One span during which a storage holds bytes: to one past the last step with a binding to it.

    An offload in between is not seen here. What the caller owns (`is_persistent`) is never freed.
    """

    storage: int
    occurrence: int
    start: int
    end: int
    is_persistent: bool


@dataclass(frozen=True, slots=True)
class Liveness:
    """Lifetimes of one schedule.

    Attributes:
        steps: those that run nodes; positions index it.
        bindings: in order of definition, graph inputs first.
        instances: in order of creation, what the caller owns first.
        deaths: for each position the values whose binding dies after that step, in order of definition: what the
            program deletes there. Graph inputs and the last bindings of graph outputs never die.
    """

    steps: tuple[Step, ...]
    bindings: tuple[Binding, ...]
    instances: tuple[Instance, ...]
    deaths: tuple[tuple[int, ...], ...]

    def handed_back(self, graph: Graph) -> frozenset[int]:
        """Instances that hold results of the program."""
        last = {binding.value: binding.instance for binding in self.bindings}
        return frozenset(i for value in graph.outputs if (i := last.get(value)) is not None)


def compute_liveness(graph: Graph, schedule: Schedule) -> Liveness:
    """Bindings, storage instances and deaths. O(total inputs and outputs of the steps).

    An operand of which only the shape matters does not keep its binding alive.
    """
    return _Walk(graph, schedule.node_steps()).result()


def with_frees(graph: Graph, schedule: Schedule) -> Schedule:
    """The schedule with a `FREE` step directly after the last step of every storage instance that dies.

    Steps that store, load and wait stay where they are, after these.
    """
    liveness = compute_liveness(graph, schedule)
    freed: list[list[Step]] = [[] for _ in liveness.steps]
    held_to_end = liveness.handed_back(graph)
    for index, instance in enumerate(liveness.instances):
        if not instance.is_persistent and index not in held_to_end:
            freed[instance.end - 1].append(Step(StepKind.FREE, instance.storage, instance.occurrence))
    steps: list[Step] = []
    position = 0
    for step in schedule.steps:
        if step.kind is StepKind.FREE:
            continue
        steps.append(step)
        if step.runs_node:
            steps.extend(sorted(freed[position], key=lambda free: (free.target, free.occurrence)))
            position += 1
    return Schedule(tuple(steps), schedule.bodies)


class _Walk:
    """One pass over the steps that binds names and stretches their spans to each use."""

    def __init__(self, graph: Graph, steps: tuple[Step, ...]) -> None:
        self.graph, self.steps = graph, steps
        self.bindings: list[Binding] = []
        self.instances: list[Instance] = []
        self.current: dict[int, int] = {}
        self.times_created: dict[int, int] = {}
        owned = {storage: self._create(storage, 0, is_persistent=True) for storage in graph.input_storages()}
        for value in graph.inputs:
            storage = graph.values[value].storage
            self._bind(value, None if storage is None else owned[storage], 0)
        for position, step in enumerate(steps):
            self._run(graph.nodes[step.target], position)

    def _run(self, node: Node, position: int) -> None:
        for value in needed_inputs(self.graph, node):
            self.bindings[self.current[value]].end = position + 1
        here: dict[int, int | None] = {
            s: self._create(s, position) for s in self.graph.created_storages(node)
        }
        for value in node.outputs:
            storage = self.graph.values[value].storage
            if storage is not None and storage not in here:
                operand = alias_operand(self.graph, node, storage)
                here[storage] = self.bindings[self.current[operand]].instance
        for value in node.outputs:
            storage = self.graph.values[value].storage
            self._bind(value, None if storage is None else here[storage], position)

    def _create(self, storage: int, position: int, *, is_persistent: bool = False) -> int:
        occurrence = self.times_created.get(storage, 0)
        self.times_created[storage] = occurrence + 1
        self.instances.append(Instance(storage, occurrence, position, position + 1, is_persistent))
        return len(self.instances) - 1

    def _bind(self, value: int, instance: int | None, position: int) -> None:
        before = self.current.get(value)
        occurrence = 0 if before is None else self.bindings[before].occurrence + 1
        self.current[value] = len(self.bindings)
        self.bindings.append(Binding(value, occurrence, instance, position, position + 1))

    def result(self) -> Liveness:
        end_of_time = len(self.steps)
        immortal = {*range(len(self.graph.inputs)), *(self.current[v] for v in self.graph.outputs)}
        deaths: list[list[int]] = [[] for _ in self.steps]
        for index, binding in enumerate(self.bindings):
            if index in immortal:
                binding.end = end_of_time
            else:
                deaths[binding.end - 1].append(binding.value)
            if binding.instance is not None:
                instance = self.instances[binding.instance]
                instance.end = max(instance.end, binding.end)
        for instance in self.instances:
            if instance.is_persistent:
                instance.end = end_of_time
        return Liveness(self.steps, tuple(self.bindings), tuple(self.instances), tuple(map(tuple, deaths)))


class Presence(NamedTuple):
    """An instance that is on the device while the steps `[start, end)` run, counting those that run nodes."""

    instance: Instance
    start: int
    end: int


class OnHost(NamedTuple):
    """Storages on the host, one for each instance, while the step at a position runs a node, or after it."""

    position: int
    storages: tuple[int, ...]
    is_running: bool


def presences(graph: Graph, schedule: Schedule) -> tuple[list[Presence], list[OnHost]]:
    """What is on the device, and what is on the host while a node runs or after a `STORE`. O(steps x storages on the host).

    An instance that is stored leaves at the `WAIT` for its copy, and is there again from its `LOAD` on: it has a presence
    for each return. One of the caller's that is loaded before it is stored is on the host from the begin.
    """
    liveness = compute_liveness(graph, schedule)
    instances = {(one.storage, one.occurrence): one for one in liveness.instances}
    since = {key: one.start for key, one in instances.items()}
    away = [(storage, 0) for storage in schedule.away_at_begin() if (storage, 0) in instances]
    for key in away:
        del since[key]
    on_host, leaving = dict.fromkeys(away), set()
    found: list[Presence] = []
    hosted: list[OnHost] = []
    position = 0
    for step in schedule.steps if schedule.has_own_transfers else ():
        key = (step.target, step.occurrence)
        if step.runs_node:
            if on_host:
                hosted.append(OnHost(position, tuple(storage for storage, _ in on_host), is_running=True))
            position += 1
        elif step.kind is StepKind.STORE:
            on_host[key] = None
            leaving.add(key)
            hosted.append(OnHost(position - 1, tuple(storage for storage, _ in on_host), is_running=False))
        elif step.kind is StepKind.LOAD:
            since[key] = position
        elif step.moves_bytes and key in leaving:
            leaving.remove(key)
            found.append(Presence(instances[key], since.pop(key), position))
        elif step.moves_bytes:
            del on_host[key]
    found += [Presence(instances[key], start, instances[key].end) for key, start in since.items()]
    return [one for one in found if one.start < one.end], hosted
