"""The integer problem that every search works on: flat arrays, no symbolic size, no object per node."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any, Final, NamedTuple

from neaptide.analysis.alias import is_pure_view
from neaptide.analysis.bounds import (
    Held,
    least_loop_bytes,
    lower_bound_bytes,
    order_lower_bound_bytes,
)
from neaptide.analysis.kinds import state_storages
from neaptide.analysis.loops import NO_BODIES, NOTHING_IN_BODIES, Bodies, InBodies
from neaptide.analysis.profile_bytes import loop_host_bytes, loop_workspaces
from neaptide.analysis.replay import repeat_rule
from neaptide.analysis.sizes import evaluate_storage_bytes, main_device, on_device
from neaptide.ir.dependencies import needed_inputs, predecessors
from neaptide.ir.graph import Graph
from neaptide.ir.registry import OpRegistry, Trait
from neaptide.ir.schedule import Offload
from neaptide.schedule.copy_streams import LoopCopies
from neaptide.schedule.order.problem import inverse

_CONTRACTIONS: Final = frozenset({Trait.CONTRACTION, Trait.CONVOLUTION, Trait.ATTENTION, Trait.RECURRENT})


_OF_EDGES: Final = ("creator", "consumers", "successors", "is_plain", "roles")


@dataclass(frozen=True, slots=True)
class Role:
    """Values on one storage that a node needs and defines, and whether it brings the storage into being."""

    needs: tuple[int, ...]
    makes: tuple[int, ...]
    creates: bool


class OnOperand(NamedTuple):
    """A node that may put its result on top of an operand; seconds beyond `seconds` of a run there, and beside."""

    storage: int
    on_s: float
    off_s: float


@dataclass(frozen=True)
class StepProblem:
    """A graph with sizes and seconds, as integers on one device.

    Storages that the caller owns, and those on other devices, have no bytes here; `persistent_bytes` holds the
    former. Indices are the graph's ids. A field is by storage, by value or by node, as its name says.

    Attributes:
        value_storage: -1 for a host scalar.
        operands: values that must exist when a node runs.
        views: by storage, nodes that only hand it on.
        writers: by storage, nodes that overwrite it, in order of the version they make.
        workspace: scratch bytes; of a loop all that its body needs.
        repeat_seconds: of a repetition: one that draws random numbers has a state to put in and take out again.
        refusals: why a node must not run twice; empty when it may.
        reads: (storage, version) that a repetition needs.
        lower_bound_bytes: no schedule has a lower peak with workspace.
        order_lower_bound_bytes: no schedule without recomputation has.
        is_contraction: whether a node's time is that of arithmetic rather than of the bytes it touches.
        state_bytes: of the caller's storages that may wait on the host meanwhile; part of `persistent_bytes`.
        body_bytes: how much of a workspace are storages that the body of a loop holds.
        body_host_bytes: most bytes that the body of a loop has on the host.
        body_copies: only of loops that move anything. Their `seconds` count what waits for these copies when no others are
            under way.
        overwrites: by node that may put its result on top of an operand. It does where every run of it is the last that
            needs an instance of the operand; `workspace` and `seconds` count what this saves as if it always did, so
            workspace may be below zero, and bounds made with them hold.
    """

    device: str
    storage_bytes: tuple[int, ...]
    persistent_bytes: int
    is_persistent: tuple[bool, ...]
    created: tuple[tuple[int, ...], ...]
    value_storage: tuple[int, ...]
    operands: tuple[tuple[int, ...], ...]
    results: tuple[tuple[int, ...], ...]
    views: tuple[tuple[int, ...], ...]
    writers: tuple[tuple[int, ...], ...]
    outputs: tuple[int, ...]
    predecessors: tuple[tuple[int, ...], ...]
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
    overwrites: Mapping[int, OnOperand] = field(default_factory=dict)

    def __post_init__(self) -> None:
        nodes, storages = len(self.operands), len(self.storage_bytes)
        for name, usual in (
            ("repeat_seconds", self.seconds),
            ("is_contraction", (False,) * nodes),
            ("body_bytes", (0,) * nodes),
            ("body_host_bytes", (0,) * nodes),
            ("state_bytes", (0,) * storages),
        ):
            if not getattr(self, name):
                object.__setattr__(self, name, usual)

    @cached_property
    def creator(self) -> tuple[int, ...]:
        """By storage, the node that creates it; -1 for what the caller owns and for what is never made."""
        creator = dict.fromkeys(range(len(self.storage_bytes)), -1)
        creator |= {storage: node for node, made in enumerate(self.created) for storage in made}
        return tuple(creator.values())

    @cached_property
    def consumers(self) -> tuple[tuple[int, ...], ...]:
        """By value, nodes that need it, ascending."""
        return inverse(self.operands, len(self.value_storage))

    @cached_property
    def successors(self) -> tuple[tuple[int, ...], ...]:
        """By node, those that must run after it."""
        return inverse(self.predecessors, len(self.operands))

    @cached_property
    def is_plain(self) -> tuple[bool, ...]:
        """By node, whether running it again is all that it takes to make again what it creates.

        Nothing writes or views that, it may run twice, and no caller's storage that it reads is ever overwritten.
        """
        return tuple(
            not self.refusals[node]
            and not any(self.writers[s] or self.views[s] for s in created)
            and not any(self.is_persistent[s] and self.writers[s] for s, _ in self.reads[node])
            for node, created in enumerate(self.created)
        )

    @cached_property
    def roles(self) -> tuple[Mapping[int, Role], ...]:
        """By storage, node -> role, for all nodes that touch it, ascending."""
        roles: list[dict[int, Role]] = [{} for _ in self.storage_bytes]
        for node, values in enumerate(zip(self.operands, self.results, strict=True)):
            needs: dict[int, list[int]] = {}
            makes: dict[int, list[int]] = {}
            for some, found in zip(values, (needs, makes), strict=True):
                for value in some:
                    if (storage := self.value_storage[value]) >= 0:
                        found.setdefault(storage, []).append(value)
            for storage in {**needs, **makes}:
                roles[storage][node] = Role(
                    tuple(needs.get(storage, ())),
                    tuple(makes.get(storage, ())),
                    storage in self.created[node],
                )
        return tuple(roles)

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
        return max(bound_bytes - sum(self.state_bytes), self.persistent_bytes)

    @property
    def lower_bound_with_state_between(self) -> int:
        """No schedule has a lower peak with workspace, whatever of the step's state is on the host between two runs.

        What no node can do without: the storages that it touches and its workspace, beside what never leaves. O(uses).
        """
        touched = inverse(self.roles, len(self.operands))
        needed = (
            nbytes + sum(map(self.moved_bytes, storages))
            for nbytes, storages in zip(self.workspace, touched, strict=True)
        )
        return self.persistent_bytes - sum(self.state_bytes) + max(needed, default=0)

    def least_with_offloads(self, bound_bytes: int, offloads: Sequence[Offload]) -> int:
        """What is left of a bound on schedules without offloads, for those with offloads of the kinds that there are among some."""
        if any(offload.begins_before or offload.ends_after for offload in offloads):
            return min(bound_bytes, self.lower_bound_with_state_between)
        if any(self.state_bytes[offload.storage] for offload in offloads):
            return self.least_with_state_away(bound_bytes)
        return bound_bytes

    def moved_bytes(self, storage: int) -> int:
        """Bytes that a copy of a storage moves, whoever owns it."""
        return self.storage_bytes[storage] or self.state_bytes[storage]

    @cached_property
    def own_workspace(self) -> tuple[int, ...]:
        """By node, its scratch bytes, whatever it overwrites."""
        own = list(self.workspace)
        for node, on in self.overwrites.items():
            own[node] += self.storage_bytes[on.storage]
        return tuple(own)

    def on_operands(self, seconds: Mapping[int, tuple[int, float]]) -> StepProblem:
        """The same step, with results of some nodes on top of operands wherever a sequence permits it. O(size of the step)."""
        workspace, times, again = list(self.workspace), list(self.seconds), list(self.repeat_seconds)
        overwrites = {}
        for node, (storage, taken_s) in seconds.items():
            workspace[node] -= self.storage_bytes[storage]
            times[node] = again[node] = least = min(taken_s, self.seconds[node])
            overwrites[node] = OnOperand(storage, taken_s - least, self.seconds[node] - least)
        # What the bodies of loops need depends on their orders.
        least, in_order = self.peak_bounds(
            [w if not b else 0 for w, b in zip(workspace, self.body_bytes, strict=True)]
        )
        return self._like(
            workspace=tuple(workspace),
            seconds=tuple(times),
            repeat_seconds=tuple(again),
            overwrites=overwrites,
            lower_bound_bytes=min(self.lower_bound_bytes, least),
            order_lower_bound_bytes=min(self.order_lower_bound_bytes, in_order),
        )

    def peak_bounds(self, workspace: Sequence[int]) -> tuple[int, int]:
        """Bytes that no schedule has a lower peak than, and none without recomputation, for some scratch bytes of nodes."""
        touched = inverse(self.roles, len(self.operands))
        kept = {s for value in self.outputs if (s := self.value_storage[value]) >= 0}
        held = Held(self.created, touched, kept, self.predecessors, self.storage_bytes, self.persistent_bytes)
        return held.least(workspace), held.in_order(workspace)

    def named(self, names: Mapping[int, str]) -> StepProblem:
        """The same with other names for some storages, by id."""
        return self._like(
            storage_names=tuple(names.get(s, name) for s, name in enumerate(self.storage_names))
        )

    def _like(self, **changes: Any) -> StepProblem:
        """The same graph with other numbers or names: what follows from its edges is not worked out again."""
        made = replace(self, **changes)
        made.__dict__.update({name: self.__dict__[name] for name in _OF_EDGES if name in self.__dict__})
        return made

    def sequence_seconds(self, sequence: Sequence[int]) -> float:
        """Seconds of a node sequence, repetitions included."""
        runs = Counter(sequence)
        again = (self.repeat_seconds[node] for node, count in runs.items() for _ in range(count - 1))
        return math.fsum(chain([self.seconds[node] for node in runs], again))

    def writes_persistent(self, node: int) -> bool:
        """Whether a node overwrites something that the caller owns."""
        return any(
            self.is_persistent[s] and node in self.writers[s]
            for v in self.operands[node]
            if (s := self.value_storage[v]) >= 0
        )


def compile_problem(
    graph: Graph,
    registry: OpRegistry,
    *,
    binding: Mapping[str, int] | None = None,
    workspace: Mapping[int, int] | None = None,
    seconds: Sequence[float] | None = None,
    random_state_seconds: float = 0.0,
    bodies: Bodies = NO_BODIES,
    in_bodies: InBodies = NOTHING_IN_BODIES,
) -> StepProblem:
    """The integer problem of a graph. O(size of the graph + nodes x storages / 64).

    Without `seconds` each node costs one. The bounds hold for all orders of bodies, but `order_lower_bound_bytes` is not
    above what those in `bodies` need.
    """
    storage_bytes = in_bodies.own_storages
    sizes = evaluate_storage_bytes(graph, binding, storage_bytes)
    where = main_device(graph, sizes)
    owned, state = set(graph.input_storages()), set(state_storages(graph))
    created = tuple(graph.created_storages(node) for node in graph.nodes)
    operands = tuple(needed_inputs(graph, node) for node in graph.nodes)
    value_storage = tuple(-1 if v.storage is None else v.storage for v in graph.values)
    touched = {value_storage[v] for n in graph.nodes for v in (*operands[n.id], *n.outputs)}
    rules = [repeat_rule(graph, node, registry) for node in graph.nodes]
    held = loop_workspaces(graph, binding, bodies, in_bodies.of_storages)
    away = loop_host_bytes(graph, bodies, where, binding)
    given = {**(workspace or {})}
    needed = loop_workspaces(graph, binding, bodies, in_bodies)
    scratch = {**given, **{loop: max(nbytes, given.get(loop, 0)) for loop, nbytes in needed.items()}}
    least, in_order = _loop_bounds(graph, binding, in_bodies, given, needed)
    holding = Held.of(graph, sizes, where)
    times = tuple(map(float, seconds)) if seconds is not None else (1.0,) * len(graph.nodes)
    return StepProblem(
        device=where,
        storage_bytes=tuple(holding.sizes),
        persistent_bytes=holding.persistent_bytes,
        is_persistent=tuple(s.id in owned for s in graph.storages),
        created=created,
        value_storage=value_storage,
        operands=operands,
        results=tuple(node.outputs for node in graph.nodes),
        views=_views(graph),
        writers=_writers(graph),
        outputs=graph.outputs,
        predecessors=tuple(predecessors(graph)),
        workspace=on_device(graph, where, scratch),
        seconds=times,
        repeat_seconds=tuple(
            time if rule.random_stream is None else time + random_state_seconds
            for time, rule in zip(times, rules, strict=True)
        ),
        refusals=tuple(rule.refusal for rule in rules),
        reads=tuple(tuple((a.storage, a.version) for a in rule.reads) for rule in rules),
        phases=tuple(node.source.phase for node in graph.nodes),
        storage_names=_storage_names(graph),
        lower_bound_bytes=holding.least(on_device(graph, where, {**given, **least})),
        order_lower_bound_bytes=holding.in_order(on_device(graph, where, {**given, **in_order})),
        is_contraction=tuple(_is_contraction(registry, node.op) for node in graph.nodes),
        body_bytes=on_device(graph, where, held),
        body_host_bytes=tuple(away.get(node.id, 0) for node in graph.nodes),
        state_bytes=tuple(
            sizes[s.id] if s.id in state and s.id in touched and s.device == where else 0
            for s in graph.storages
        ),
    )


def _loop_bounds(
    graph: Graph,
    binding: Mapping[str, int] | None,
    in_bodies: InBodies,
    given: Mapping[int, int],
    needed: Mapping[int, int],
) -> tuple[dict[int, int], dict[int, int]]:
    """By loop, the least that its body needs in any schedule, and in any order; never below what is given."""
    least = least_loop_bytes(graph, binding, lower_bound_bytes, in_bodies)
    least = {loop: max(nbytes, given.get(loop, 0)) for loop, nbytes in least.items()}
    in_order = least_loop_bytes(graph, binding, order_lower_bound_bytes, in_bodies)
    return least, {loop: max(min(most, needed[loop]), least[loop]) for loop, most in in_order.items()}


def _is_contraction(registry: OpRegistry, op: str) -> bool:
    spec = registry.find(op)
    return spec is not None and not _CONTRACTIONS.isdisjoint(spec.traits)


def _views(graph: Graph) -> tuple[tuple[int, ...], ...]:
    shown = (
        {s for v in node.outputs if (s := graph.values[v].storage) is not None and is_pure_view(graph, node)}
        for node in graph.nodes
    )
    return inverse(shown, len(graph.storages))


def _writers(graph: Graph) -> tuple[tuple[int, ...], ...]:
    writers: list[list[tuple[int, int]]] = [[] for _ in graph.storages]
    for node in graph.nodes:
        for access in node.effects.writes:
            writers[access.storage].append((access.version, node.id))
    return tuple(tuple(node for _, node in sorted(pairs)) for pairs in writers)


def _storage_names(graph: Graph) -> tuple[str, ...]:
    first: dict[int | None, str] = {}
    for value in graph.values:
        first.setdefault(value.storage, value.name)
    return tuple(storage.name or first.get(storage.id, f"storage {storage.id}") for storage in graph.storages)
