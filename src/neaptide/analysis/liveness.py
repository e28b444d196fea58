"""Lifetimes under a schedule: which name holds which bytes from which step to which.

Positions count node steps only (0 is the first step that runs a node); ranges are half-open, `[start, end)`.
A name that dies after the step at position p has `end == p + 1`: during p it is still there.
"""

from __future__ import annotations

from dataclasses import dataclass

from neaptide.analysis.alias import alias_operand
from neaptide.ir.dependencies import needed_inputs
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node
from neaptide.ir.schedule import Schedule, Step, StepKind


@dataclass(frozen=True, slots=True)
class Binding:
    """One span during which a name is bound.

    Attributes:
        value: the name.
        occurrence: 0 for its first definition, k for the k-th repetition.
        instance: index in `Liveness.instances`; None for a host scalar.
        start: position of the step that defines it; 0 for graph inputs.
        end: one past the last step that needs it before it is defined again.
    """

    value: int
    occurrence: int
    instance: int | None
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Instance:
    """One span during which a storage holds bytes.

    Attributes:
        storage: id.
        occurrence: 0 for the first creation, k for the k-th repetition.
        start: position of the step that creates it; 0 for what the caller owns.
        end: one past the last step with a binding to it. A stay on the host in between is not seen here.
        is_resident: the caller owns it; it is never freed.
    """

    storage: int
    occurrence: int
    start: int
    end: int
    is_resident: bool


@dataclass(frozen=True, slots=True)
class Liveness:
    """Lifetimes of one schedule.

    Attributes:
        steps: the steps that run nodes; positions index it.
        bindings: in order of definition, graph inputs first.
        instances: in order of creation, caller-owned storages first.
        deaths: for each position the values whose binding dies after that step, in order of definition: what the
            program deletes there. Graph inputs and the last bindings of graph outputs never die.
    """

    steps: tuple[Step, ...]
    bindings: tuple[Binding, ...]
    instances: tuple[Instance, ...]
    deaths: tuple[tuple[int, ...], ...]


def compute_liveness(graph: Graph, schedule: Schedule) -> Liveness:
    """Bindings, storage instances and deaths. O(total inputs and outputs of the steps).

    An operand of which only the shape matters does not keep its binding alive.
    """
    return _Walk(graph, schedule.node_steps()).result()


def with_frees(graph: Graph, schedule: Schedule) -> Schedule:
    """The schedule with a `FREE` step directly behind the last step of every storage instance that dies.

    Steps that store, load and wait stay where they are, behind these.
    """
    liveness = compute_liveness(graph, schedule)
    freed: list[list[Step]] = [[] for _ in liveness.steps]
    held_to_end = set(_instances_of_outputs(graph, liveness))
    for index, instance in enumerate(liveness.instances):
        if not instance.is_resident and index not in held_to_end:
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


def _instances_of_outputs(graph: Graph, liveness: Liveness) -> list[int]:
    last = {binding.value: binding.instance for binding in liveness.bindings}
    return [i for v in graph.outputs if (i := last.get(v)) is not None]


class _Walk:
    """One pass over the steps that binds names and stretches their spans to each use."""

    def __init__(self, graph: Graph, steps: tuple[Step, ...]) -> None:
        self.graph = graph
        self.steps = steps
        self.binding_value: list[int] = []
        self.binding_occurrence: list[int] = []
        self.binding_instance: list[int | None] = []
        self.binding_start: list[int] = []
        self.binding_end: list[int] = []
        self.current: dict[int, int] = {}
        self.times_bound: dict[int, int] = {}
        self.instance_storage: list[int] = []
        self.instance_occurrence: list[int] = []
        self.instance_start: list[int] = []
        self.times_created: dict[int, int] = {}
        self.caller_owned = len(graph.inputs)
        self._bind_inputs()
        for position, step in enumerate(steps):
            self._run(graph.nodes[step.target], position)

    def _bind_inputs(self) -> None:
        owned = {storage: self._create(storage, 0) for storage in self.graph.input_storages()}
        for value in self.graph.inputs:
            storage = self.graph.values[value].storage
            self._bind(value, None if storage is None else owned[storage], 0)

    def _run(self, node: Node, position: int) -> None:
        for value in needed_inputs(self.graph, node):
            self.binding_end[self.current[value]] = position + 1
        here: dict[int, int | None] = {
            s: self._create(s, position) for s in self.graph.created_storages(node)
        }
        for value in node.outputs:
            storage = self.graph.values[value].storage
            if storage is not None and storage not in here:
                operand = alias_operand(self.graph, node, storage)
                here[storage] = self.binding_instance[self.current[operand]]
        for value in node.outputs:
            storage = self.graph.values[value].storage
            self._bind(value, None if storage is None else here[storage], position)

    def _create(self, storage: int, position: int) -> int:
        self.instance_storage.append(storage)
        self.instance_occurrence.append(self.times_created.get(storage, 0))
        self.instance_start.append(position)
        self.times_created[storage] = self.instance_occurrence[-1] + 1
        return len(self.instance_storage) - 1

    def _bind(self, value: int, instance: int | None, position: int) -> None:
        self.current[value] = len(self.binding_value)
        self.binding_value.append(value)
        self.binding_occurrence.append(self.times_bound.get(value, 0))
        self.binding_instance.append(instance)
        self.binding_start.append(position)
        self.binding_end.append(position + 1)
        self.times_bound[value] = self.binding_occurrence[-1] + 1

    def result(self) -> Liveness:
        end_of_time = len(self.steps)
        immortal = {*range(self.caller_owned), *(self.current[v] for v in self.graph.outputs)}
        deaths: list[list[int]] = [[] for _ in self.steps]
        instance_end = [start + 1 for start in self.instance_start]
        for index, value in enumerate(self.binding_value):
            if index in immortal:
                self.binding_end[index] = end_of_time
            else:
                deaths[self.binding_end[index] - 1].append(value)
            instance = self.binding_instance[index]
            if instance is not None:
                instance_end[instance] = max(instance_end[instance], self.binding_end[index])
        owned = len(self.graph.input_storages())
        return Liveness(
            steps=self.steps,
            bindings=tuple(
                Binding(*row)
                for row in zip(
                    self.binding_value,
                    self.binding_occurrence,
                    self.binding_instance,
                    self.binding_start,
                    self.binding_end,
                    strict=True,
                )
            ),
            instances=tuple(
                Instance(storage, occurrence, start, end_of_time if index < owned else end, index < owned)
                for index, (storage, occurrence, start, end) in enumerate(
                    zip(
                        self.instance_storage,
                        self.instance_occurrence,
                        self.instance_start,
                        instance_end,
                        strict=True,
                    )
                )
            ),
            deaths=tuple(tuple(values) for values in deaths),
        )
