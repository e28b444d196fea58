"""The integer problem that every search works on: flat arrays, no symbolic size, no object per node."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from neaptide.analysis.alias import is_pure_view, values_by_storage
from neaptide.analysis.bounds import least_loop_bytes, lower_bound_bytes, order_lower_bound_bytes
from neaptide.analysis.kinds import state_storages
from neaptide.analysis.loops import NO_BODIES, NOTHING_IN_BODIES, Bodies, InBodies
from neaptide.analysis.profile_bytes import loop_host_bytes, loop_workspaces
from neaptide.analysis.replay import repeat_rule
from neaptide.analysis.sizes import evaluate_storage_bytes, main_device, node_device
from neaptide.ir.dependencies import needed_inputs, predecessors
from neaptide.ir.graph import Graph
from neaptide.ir.registry import OpRegistry, Trait
from neaptide.schedule.loop_copies import LoopCopies

_CONTRACTIONS: Final = frozenset({Trait.CONTRACTION, Trait.CONVOLUTION, Trait.ATTENTION, Trait.RECURRENT})


@dataclass(frozen=True, slots=True)
class Role:
    """What a node does with one storage.

    Attributes:
        needs: values on it that the node needs.
        makes: values on it that the node defines.
        creates: the node brings it into being, rather than seeing the instance of its operand.
    """

    needs: tuple[int, ...]
    makes: tuple[int, ...]
    creates: bool


@dataclass(frozen=True, slots=True)
class StepProblem:
    """A graph with sizes and seconds, as integers on one device.

    Storages that the caller owns, and those on other devices, have no bytes here; `resident_bytes` holds the
    former. Indices are the graph's ids.

    Attributes:
        device: whose bytes count.
        storage_bytes: by storage.
        resident_bytes: of what the caller owns.
        is_resident: by storage, whether the caller owns it.
        creator: by storage, the node that creates it; -1 for what the caller owns and for what is never made.
        created: by node, storages that it creates.
        value_storage: by value; -1 for a host scalar.
        operands: by node, values that must exist when it runs.
        results: by node, values that it defines.
        roles: by storage, node -> role, for all nodes that touch it, ascending.
        views: by storage, nodes that only hand it on, ascending.
        writers: by storage, nodes that overwrite it, in order of the version they make.
        consumers: by value, nodes that need it, ascending.
        outputs: values handed back.
        predecessors: by node, nodes that must run first.
        successors: the inverse.
        workspace: by node, scratch bytes; of a loop all that its body needs.
        seconds: by node, of one execution.
        repeat_seconds: by node, of a repetition: one that draws random numbers has a state to put in and take out
            again. By default the same as `seconds`.
        refusals: by node, why it must not run twice; empty when it may.
        reads: by node, (storage, version) that a repetition needs.
        phases: by node, `forward`, `backward`, `optimizer` or empty.
        storage_names: for reports.
        lower_bound_bytes: no schedule has a lower peak with workspace.
        order_lower_bound_bytes: no schedule without recomputation has.
        is_contraction: by node, whether it multiplies and sums (matmul, convolution, attention, recurrence), so that
            its time is that of arithmetic rather than of the bytes it touches. By default none does.
        state_bytes: by storage, of those of the caller's on this device that nodes touch and that may wait on the host meanwhile; part
            of `resident_bytes`. By default none may.
        body_bytes: by node, how much of its workspace are storages that the body of a loop holds. By default none.
        body_host_bytes: by node, most bytes that the body of a loop has on the host. By default none.
        body_copies: by node, the copies of a loop's body and what runs beside them; only of loops that move anything.
            Their `seconds` count what waits for these copies when no others are under way.
        is_plain: by node, whether running it again is all that it takes to make again what it creates: nothing writes
            or views that, it may run twice, and no caller's storage that it reads is ever overwritten. Derived.
    """

    device: str
    storage_bytes: tuple[int, ...]
    resident_bytes: int
    is_resident: tuple[bool, ...]
    creator: tuple[int, ...]
    created: tuple[tuple[int, ...], ...]
    value_storage: tuple[int, ...]
    operands: tuple[tuple[int, ...], ...]
    results: tuple[tuple[int, ...], ...]
    roles: tuple[Mapping[int, Role], ...]
    views: tuple[tuple[int, ...], ...]
    writers: tuple[tuple[int, ...], ...]
    consumers: tuple[tuple[int, ...], ...]
    outputs: tuple[int, ...]
    predecessors: tuple[tuple[int, ...], ...]
    successors: tuple[tuple[int, ...], ...]
    workspace: tuple[int, ...]
    seconds: tuple[float, ...]
    refusals: tuple[str, ...]
    reads: tuple[tuple[tuple[int, int], ...], ...]
    phases: tuple[str, ...]
    storage_names: tuple[str, ...]
    lower_bound_bytes: int
    order_lower_bound_bytes: int
    repeat_seconds: tuple[float, ...] = ()
    is_contraction: tuple[bool, ...] = ()
    body_bytes: tuple[int, ...] = ()
    body_host_bytes: tuple[int, ...] = ()
    body_copies: Mapping[int, LoopCopies] = field(default_factory=dict)
    state_bytes: tuple[int, ...] = ()
    is_plain: tuple[bool, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.repeat_seconds:
            object.__setattr__(self, "repeat_seconds", self.seconds)
        if not self.is_contraction:
            object.__setattr__(self, "is_contraction", (False,) * len(self.operands))
        if not self.body_bytes:
            object.__setattr__(self, "body_bytes", (0,) * len(self.operands))
        if not self.body_host_bytes:
            object.__setattr__(self, "body_host_bytes", (0,) * len(self.operands))
        if not self.state_bytes:
            object.__setattr__(self, "state_bytes", (0,) * len(self.storage_bytes))
        plain = tuple(
            not self.refusals[node]
            and not any(self.writers[s] or self.views[s] for s in created)
            and not any(self.is_resident[s] and self.writers[s] for s, _ in self.reads[node])
            for node, created in enumerate(self.created)
        )
        object.__setattr__(self, "is_plain", plain)

    @property
    def node_count(self) -> int:
        return len(self.operands)

    @property
    def baseline_seconds(self) -> float:
        """Seconds of running every node once."""
        return sum(self.seconds)

    @property
    def lower_bound_with_state_away(self) -> int:
        """No schedule has a lower peak with workspace, whatever of the step's state waits on the host meanwhile."""
        return self.least_with_state_away(self.lower_bound_bytes)

    def least_with_state_away(self, bound_bytes: int) -> int:
        """What is left of a bound on schedules with all state on the device: all of it is there when the step begins."""
        return max(bound_bytes - sum(self.state_bytes), self.resident_bytes)

    def moved_bytes(self, storage: int) -> int:
        """Bytes that a copy of a storage moves, whoever owns it."""
        return self.storage_bytes[storage] or self.state_bytes[storage]

    def named(self, names: Mapping[int, str]) -> StepProblem:
        """The same with other names for some storages, by id."""
        return replace(
            self, storage_names=tuple(names.get(s, name) for s, name in enumerate(self.storage_names))
        )

    def sequence_seconds(self, sequence: Sequence[int]) -> float:
        """Seconds of a node sequence, repetitions included."""
        seen: set[int] = set()
        parts = []
        for node in sequence:
            parts.append(self.repeat_seconds[node] if node in seen else self.seconds[node])
            seen.add(node)
        return math.fsum(parts)

    def writes_resident(self, node: int) -> bool:
        """Whether a node overwrites something that the caller owns."""
        return any(
            self.is_resident[s] and node in self.writers[s]
            for v in self.operands[node]
            if (s := self.value_storage[v]) >= 0
        )


def compile_problem(
    graph: Graph,
    registry: OpRegistry,
    *,
    binding: Mapping[str, int] | None = None,
    workspace: Mapping[int, int] | None = None,
    storage_bytes: Mapping[int, int] | None = None,
    seconds: Sequence[float] | None = None,
    device: str | None = None,
    random_state_seconds: float = 0.0,
    bodies: Bodies = NO_BODIES,
    in_bodies: InBodies = NOTHING_IN_BODIES,
    body_copies: Mapping[int, LoopCopies] = MappingProxyType({}),
) -> StepProblem:
    """The integer problem of a graph. O(size of the graph + nodes x storages / 64).

    Args:
        graph: the program.
        registry: what its operations mean; one without a row is never repeated.
        binding: values of symbolic dims.
        workspace: scratch bytes by node id; of a loop at least what its body holds.
        storage_bytes: sizes by storage id that replace the recorded ones.
        seconds: of one execution of each node; by default each node costs one.
        device: whose bytes count; by default the one with the largest total of storages.
        random_state_seconds: what it takes to repeat a draw of random numbers, beside the operation itself.
        bodies: by node, the order in which its loop's body runs; program order for the others. The bounds hold for all
            orders of bodies, but `order_lower_bound_bytes` is not above what these need.
        in_bodies: what is known of bytes in bodies beside their graphs.
        body_copies: by loop whose body moves anything, when it does.
    """
    sizes = evaluate_storage_bytes(graph, binding, storage_bytes)
    where = device if device is not None else main_device(graph, sizes)
    owned, state = set(graph.input_storages()), set(state_storages(graph))
    created = tuple(graph.created_storages(node) for node in graph.nodes)
    creator = [-1] * len(graph.storages)
    for node, storages in enumerate(created):
        for storage in storages:
            creator[storage] = node
    operands = tuple(needed_inputs(graph, node) for node in graph.nodes)
    roles = _roles(graph, operands, created)
    value_storage = tuple(-1 if v.storage is None else v.storage for v in graph.values)
    before = tuple(predecessors(graph))
    rules = [repeat_rule(graph, node, registry) for node in graph.nodes]
    held = loop_workspaces(graph, binding, bodies, in_bodies.of_storages)
    away = loop_host_bytes(graph, bodies, where, binding)
    given = {**(workspace or {})}
    needed = loop_workspaces(graph, binding, bodies, in_bodies)
    scratch = {**given, **{loop: max(nbytes, given.get(loop, 0)) for loop, nbytes in needed.items()}}
    least = least_loop_bytes(graph, binding, lower_bound_bytes, in_bodies)
    least = {loop: max(nbytes, given.get(loop, 0)) for loop, nbytes in least.items()}
    in_order = least_loop_bytes(graph, binding, order_lower_bound_bytes, in_bodies)
    in_order = {loop: max(min(most, needed[loop]), least[loop]) for loop, most in in_order.items()}
    times = tuple(map(float, seconds)) if seconds is not None else (1.0,) * len(graph.nodes)
    return StepProblem(
        device=where,
        storage_bytes=tuple(0 if s.id in owned or s.device != where else sizes[s.id] for s in graph.storages),
        resident_bytes=sum(sizes[s] for s in owned if graph.storages[s].device == where),
        is_resident=tuple(s.id in owned for s in graph.storages),
        creator=tuple(creator),
        created=created,
        value_storage=value_storage,
        operands=operands,
        results=tuple(node.outputs for node in graph.nodes),
        roles=roles,
        views=_views(graph),
        writers=_writers(graph),
        consumers=_consumers(graph, operands),
        outputs=graph.outputs,
        predecessors=before,
        successors=_successors(before),
        workspace=tuple(
            scratch.get(node.id, 0) if node_device(graph, node) == where else 0 for node in graph.nodes
        ),
        seconds=times,
        repeat_seconds=tuple(
            time if rule.random_stream is None else time + random_state_seconds
            for time, rule in zip(times, rules, strict=True)
        ),
        refusals=tuple(rule.refusal for rule in rules),
        reads=tuple(tuple((a.storage, a.version) for a in rule.reads) for rule in rules),
        phases=tuple(node.source.phase for node in graph.nodes),
        storage_names=_storage_names(graph),
        lower_bound_bytes=lower_bound_bytes(
            graph,
            binding=binding,
            workspace={**given, **least},
            storage_bytes=storage_bytes,
            device=where,
        ),
        order_lower_bound_bytes=order_lower_bound_bytes(
            graph,
            binding=binding,
            workspace={**given, **in_order},
            storage_bytes=storage_bytes,
            device=where,
        ),
        is_contraction=tuple(_is_contraction(registry, node.op) for node in graph.nodes),
        body_bytes=tuple(
            held.get(node.id, 0) if node_device(graph, node) == where else 0 for node in graph.nodes
        ),
        body_host_bytes=tuple(away.get(node.id, 0) for node in graph.nodes),
        body_copies=dict(body_copies),
        state_bytes=tuple(
            sizes[s.id] if s.id in state and roles[s.id] and s.device == where else 0 for s in graph.storages
        ),
    )


def _is_contraction(registry: OpRegistry, op: str) -> bool:
    spec = registry.find(op)
    return spec is not None and not _CONTRACTIONS.isdisjoint(spec.traits)


def _roles(
    graph: Graph, operands: tuple[tuple[int, ...], ...], created: tuple[tuple[int, ...], ...]
) -> tuple[Mapping[int, Role], ...]:
    roles: list[dict[int, Role]] = [{} for _ in graph.storages]
    for node in graph.nodes:
        needs: dict[int, list[int]] = {}
        makes: dict[int, list[int]] = {}
        for values, found in ((operands[node.id], needs), (node.outputs, makes)):
            for value in values:
                storage = graph.values[value].storage
                if storage is not None:
                    found.setdefault(storage, []).append(value)
        for storage in {**needs, **makes}:
            roles[storage][node.id] = Role(
                tuple(needs.get(storage, ())), tuple(makes.get(storage, ())), storage in created[node.id]
            )
    return tuple(roles)


def _views(graph: Graph) -> tuple[tuple[int, ...], ...]:
    views: list[list[int]] = [[] for _ in graph.storages]
    for node in graph.nodes:
        if is_pure_view(graph, node):
            for storage in {graph.values[v].storage for v in node.outputs}:
                if storage is not None:
                    views[storage].append(node.id)
    return tuple(map(tuple, views))


def _writers(graph: Graph) -> tuple[tuple[int, ...], ...]:
    writers: list[list[tuple[int, int]]] = [[] for _ in graph.storages]
    for node in graph.nodes:
        for access in node.effects.writes:
            writers[access.storage].append((access.version, node.id))
    return tuple(tuple(node for _, node in sorted(pairs)) for pairs in writers)


def _consumers(graph: Graph, operands: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
    consumers: list[list[int]] = [[] for _ in graph.values]
    for node, values in enumerate(operands):
        for value in values:
            consumers[value].append(node)
    return tuple(map(tuple, consumers))


def _successors(before: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
    after: list[list[int]] = [[] for _ in before]
    for node, earlier in enumerate(before):
        for other in earlier:
            after[other].append(node)
    return tuple(map(tuple, after))


def _storage_names(graph: Graph) -> tuple[str, ...]:
    first = [values[0] if values else None for values in values_by_storage(graph)]
    return tuple(
        storage.name or (graph.values[value].name if value is not None else f"storage {storage.id}")
        for storage, value in zip(graph.storages, first, strict=True)
    )
