"""Is a schedule legal: does every step find the bytes that the captured program found.

A simulator of Python variables with version counters; it shares no code with the planners that it checks.
"""

from __future__ import annotations

from dataclasses import dataclass

from neaptide.analysis.legality.transfers import InstanceKey, StepUse, check_transfers
from neaptide.analysis.loops import Bodies
from neaptide.analysis.replay import Repeat, repeat_rule
from neaptide.errors import VerifyError
from neaptide.ir.dependencies import needed_inputs, predecessors
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Access, Node
from neaptide.ir.registry import OpRegistry
from neaptide.ir.schedule import Schedule, Step, StepKind


@dataclass(slots=True, eq=False)
class _Instance:
    """An instance of a storage: which one, and how often it has been written."""

    storage: int
    occurrence: int
    version: int = 0
    is_freed: bool = False

    @property
    def key(self) -> InstanceKey:
        return self.storage, self.occurrence


def check_schedule(graph: Graph, schedule: Schedule, registry: OpRegistry) -> None:
    """Check that a schedule computes what the graph computes; errors name the step and the rule that it breaks.

    Every node runs at least once; first executions come after all their predecessors, so that none crosses the border
    of a segment; every needed operand is bound, not freed, and at the version that the capture recorded, in repetitions as well; nothing is repeated
    that `analysis.replay.repeat_rule` refuses; at the end every output holds its final version. What is stored on the
    host is away only while nothing touches it (`analysis.legality.transfers`). The orders of bodies are checked as well.
    """
    check_bodies(graph, schedule.bodies, registry)
    _Checker(graph, registry).run(schedule)


def check_bodies(graph: Graph, bodies: Bodies, registry: OpRegistry) -> None:
    """Check that the orders of bodies compute what the bodies compute, as `check_schedule` does."""
    for number, order in bodies.items():
        if not (0 <= number < len(graph.nodes) and graph.nodes[number].regions):
            raise VerifyError(f"node {number} has an order for a body, and is no loop")
        body = graph.nodes[number].regions[0].body
        try:
            check_bodies(body, order.bodies, registry)
            _Checker(body, registry, is_body=True).run(order)
        except VerifyError as error:
            raise VerifyError(
                f"in the body of node {number}, {error.what}", where=error.where, why=error.why
            ) from error


class _Checker:
    def __init__(self, graph: Graph, registry: OpRegistry, *, is_body: bool = False) -> None:
        self.graph = graph
        self.is_body = is_body
        self.registry = registry
        self.before = predecessors(graph)
        self.executions = [0] * len(graph.nodes)
        self.creations: dict[int, int] = {}
        self.instances: dict[tuple[int, int], _Instance] = {}
        self.bound: dict[int, _Instance | None] = {}
        self.uses: list[StepUse] = []
        self.owned = {s: self._new_instance(s) for s in graph.input_storages()}
        for value in graph.inputs:
            storage = graph.values[value].storage
            self.bound[value] = None if storage is None else self.owned[storage]

    def run(self, schedule: Schedule) -> None:
        for position, step in enumerate(schedule.steps):
            if step.runs_node:
                self._run_node(step, position)
            elif step.kind is StepKind.FREE:
                self._free(step, position)
            elif not step.moves_bytes:
                raise VerifyError(
                    f"step {position} is a {step.kind} step",
                    why="this check covers steps that run nodes, free storages, or take them to the host and back",
                )
        for node, count in enumerate(self.executions):
            if count == 0:
                raise VerifyError(f"{self._name(node)} never runs", where=self._where(node))
        self._check_outputs()
        kept = {instance.key for v in self.graph.outputs if (instance := self.bound[v]) is not None}
        check_transfers(self.graph, schedule, self.uses, kept, is_body=self.is_body)

    def _run_node(self, step: Step, position: int) -> None:
        node = self.graph.nodes[step.target]
        rule = self._enter(node, step, position)
        needed = needed_inputs(self.graph, node)
        for value in needed:
            if value not in self.bound:
                raise self._broken(node, position, f"{self.graph.values[value].name} is not bound yet")
            instance = self.bound[value]
            if instance is not None and instance.is_freed:
                raise self._broken(node, position, f"{self.graph.values[value].name} has been freed")
        operands = self._operands(node)
        for access in rule.reads:
            self._check_version(node, position, operands, access, access.version)
        for access in rule.writes:
            self._check_version(node, position, operands, access, access.version - 1)
            operands[access.storage][0].version = access.version
        touched = [self.bound[value] for value in needed]
        self._bind_outputs(node, position, operands)
        touched += [self.bound[value] for value in node.outputs]
        self.uses.append(
            StepUse(
                frozenset(instance.key for instance in touched if instance is not None),
                frozenset(operands[access.storage][0].key for access in rule.writes),
            )
        )

    def _enter(self, node: Node, step: Step, position: int) -> Repeat:
        """Count an execution, check that it may happen now, and say what it reads and writes."""
        if step.occurrence != self.executions[node.id]:
            raise self._broken(
                node,
                position,
                f"this is execution {self.executions[node.id]}, the step says {step.occurrence}",
            )
        self.executions[node.id] += 1
        if step.occurrence == 0:
            for other in self.before[node.id]:
                if not self.executions[other]:
                    raise self._broken(node, position, f"{self._name(other)} must run before it")
            return Repeat("", node.effects.reads, node.effects.writes)
        rule = repeat_rule(self.graph, node, self.registry)
        if not rule.is_allowed:
            raise self._broken(node, position, f"it must not be repeated: it {rule.refusal}")
        return rule

    def _operands(self, node: Node) -> dict[int, list[_Instance]]:
        """Distinct instances, by storage, that the inputs of a node are bound to."""
        found: dict[int, list[_Instance]] = {}
        for value in node.inputs:
            instance = self.bound.get(value)
            if instance is not None and instance not in found.setdefault(instance.storage, []):
                found[instance.storage].append(instance)
        return found

    def _check_version(
        self, node: Node, position: int, operands: dict[int, list[_Instance]], access: Access, expected: int
    ) -> None:
        seen = [instance for instance in operands.get(access.storage, []) if not instance.is_freed]
        name = self._storage_name(access.storage)
        if not seen:
            raise self._broken(node, position, f"no input holds {name}")
        for instance in seen:
            if instance.version != expected:
                raise self._broken(node, position, f"{name} is at version {instance.version}, not {expected}")
        if len(seen) > 1 and access in node.effects.writes:
            raise self._broken(node, position, f"its operands hold two instances of {name}")

    def _bind_outputs(self, node: Node, position: int, operands: dict[int, list[_Instance]]) -> None:
        here = {storage: self._new_instance(storage) for storage in self.graph.created_storages(node)}
        for value in node.outputs:
            storage = self.graph.values[value].storage
            if storage is None:
                self.bound[value] = None
                continue
            if storage not in here:
                seen = [instance for instance in operands.get(storage, []) if not instance.is_freed]
                if len(seen) != 1:
                    raise self._broken(
                        node,
                        position,
                        f"its operands hold {len(seen)} instances of {self._storage_name(storage)}",
                    )
                here[storage] = seen[0]
            self.bound[value] = here[storage]

    def _free(self, step: Step, position: int) -> None:
        instance = self.instances.get((step.target, step.occurrence))
        name = self._storage_name(step.target)
        if instance is None or instance.is_freed:
            raise VerifyError(f"step {position} frees {name}, which is not there")
        if step.target in self.owned:
            raise VerifyError(f"step {position} frees {name}, which the caller owns")
        instance.is_freed = True

    def _check_outputs(self) -> None:
        final: dict[int, int] = {}
        for node in self.graph.nodes:
            for access in node.effects.writes:
                final[access.storage] = max(final.get(access.storage, 0), access.version)
        for value in self.graph.outputs:
            instance = self.bound.get(value)
            name = self.graph.values[value].name
            if value not in self.bound:
                raise VerifyError(f"output {name} is never made")
            if instance is None:
                continue
            if instance.is_freed:
                raise VerifyError(f"output {name} has been freed")
            if instance.version != final.get(instance.storage, 0):
                raise VerifyError(
                    f"output {name} is at version {instance.version}, not {final.get(instance.storage, 0)}"
                )

    def _new_instance(self, storage: int) -> _Instance:
        occurrence = self.creations.get(storage, 0)
        self.creations[storage] = occurrence + 1
        instance = _Instance(storage, occurrence)
        self.instances[storage, occurrence] = instance
        return instance

    def _name(self, node: int) -> str:
        return f"node {node} ({self.graph.nodes[node].op})"

    def _where(self, node: int) -> str | None:
        return self.graph.nodes[node].source.location or None

    def _storage_name(self, storage: int) -> str:
        return self.graph.storages[storage].name or f"storage {storage}"

    def _broken(self, node: Node, position: int, why: str) -> VerifyError:
        return VerifyError(
            f"step {position} cannot run {self._name(node.id)}", where=self._where(node.id), why=why
        )
