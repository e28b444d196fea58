"""Bytes at every step of a schedule: the slow reference evaluator, and the final judge of every plan.

It plays the schedule with Python variables: a name is bound to an object with a reference count, it is deleted
behind its last use, and an object whose count falls to zero gives its bytes back. Everything faster must agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from neaptide.analysis.alias import alias_operand
from neaptide.analysis.kinds import storage_kinds
from neaptide.analysis.loops import NO_BODIES, Binding, Bodies, body_schedule, trips
from neaptide.analysis.sizes import evaluate_storage_bytes, main_device, node_device
from neaptide.ir.dependencies import needed_inputs
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node, Source
from neaptide.ir.schedule import Schedule
from neaptide.ir.values import Kind

NodeBytes = Callable[[Graph, Node, Binding], int]


@dataclass(frozen=True, slots=True)
class AliveStorage:
    """A storage instance that is there at the peak.

    Attributes:
        storage: id.
        occurrence: 0 for the first instance, k for the k-th repetition.
        nbytes: its size.
        kind: what it is for.
        name: of the value that created it.
        source: of the node that created it; empty for what the caller owns.
    """

    storage: int
    occurrence: int
    nbytes: int
    kind: Kind
    name: str
    source: Source


@dataclass(frozen=True, slots=True)
class MemoryProfile:
    """Bytes on one device while each step runs; operands, outputs and everything kept for later together.

    Attributes:
        device: which one; other devices are in `peak_bytes_by_device`.
        bytes_at: for each node step, caller-owned storages included, workspace not.
        bytes_at_by_kind: the same, split; the kinds add up to `bytes_at`.
        workspace_at: scratch bytes of each node step.
        resident_bytes: of the storages that the caller owns.
        peak_step: position of the first highest step of `bytes_at`; None when there are no steps.
        peak_bytes: highest `bytes_at`.
        peak_with_workspace_step: position of the first highest step with workspace added.
        peak_with_workspace_bytes: bytes at that step.
        alive_at_peak: what is there at `peak_step`, largest first.
        peak_bytes_by_device: `peak_bytes` of every device.
    """

    device: str
    bytes_at: tuple[int, ...]
    bytes_at_by_kind: Mapping[Kind, tuple[int, ...]]
    workspace_at: tuple[int, ...]
    resident_bytes: int
    peak_step: int | None
    peak_bytes: int
    peak_with_workspace_step: int | None
    peak_with_workspace_bytes: int
    alive_at_peak: tuple[AliveStorage, ...]
    peak_bytes_by_device: Mapping[str, int]


@dataclass(slots=True, eq=False)
class _Bytes:
    """An instance of a storage, held by `references` names."""

    storage: int
    occurrence: int
    creator: int | None
    references: int = 0


def memory_profile(
    graph: Graph,
    schedule: Schedule,
    *,
    binding: Mapping[str, int] | None = None,
    workspace: Mapping[int, int] | None = None,
    storage_bytes: Mapping[int, int] | None = None,
    device: str | None = None,
) -> MemoryProfile:
    """Play a schedule and count the bytes of storages at every step. O(steps x storages alive).

    Args:
        graph: the program.
        schedule: its steps; `FREE` steps are ignored, since they follow from the order.
        binding: values of symbolic dims.
        workspace: scratch bytes by node id. A loop that is not in it is charged with its body's transient peak.
        storage_bytes: sizes by storage id that replace the recorded ones.
        device: whose bytes are wanted; by default the one with the largest total of storages.
    """
    sizes = evaluate_storage_bytes(graph, binding, storage_bytes)
    wanted = device if device is not None else main_device(graph, sizes)
    scratch = loop_workspaces(graph, binding, schedule.bodies)
    scratch.update(workspace or {})
    snapshots = _play(graph, schedule)
    kinds = storage_kinds(graph)

    resident_by_kind: Counter[Kind] = Counter()
    peaks: Counter[str] = Counter(dict.fromkeys((s.device for s in graph.storages), 0))
    for storage in graph.input_storages():
        where = graph.storages[storage].device
        peaks[where] += sizes[storage]
        if where == wanted:
            resident_by_kind[kinds[storage]] += sizes[storage]
    resident = dict(peaks)

    bytes_at: list[int] = []
    by_kind: dict[Kind, list[int]] = {kind: [] for kind in Kind}
    for alive in snapshots:
        here = Counter(resident_by_kind)
        per_device = Counter(resident)
        for instance in alive:
            where = graph.storages[instance.storage].device
            per_device[where] += sizes[instance.storage]
            if where == wanted:
                here[kinds[instance.storage]] += sizes[instance.storage]
        bytes_at.append(per_device[wanted])
        for kind in Kind:
            by_kind[kind].append(here[kind])
        for where, total in per_device.items():
            peaks[where] = max(peaks[where], total)

    workspace_at = [
        scratch.get(step.target, 0) if node_device(graph, graph.nodes[step.target]) == wanted else 0
        for step in schedule.node_steps()
    ]
    with_workspace = [a + b for a, b in zip(bytes_at, workspace_at, strict=True)]
    peak_step = bytes_at.index(max(bytes_at)) if bytes_at else None
    workspace_step = with_workspace.index(max(with_workspace)) if with_workspace else None
    owned = [_Bytes(storage, 0, None) for storage in graph.input_storages()]
    at_peak = owned if peak_step is None else owned + snapshots[peak_step]
    return MemoryProfile(
        device=wanted,
        bytes_at=tuple(bytes_at),
        bytes_at_by_kind={kind: tuple(series) for kind, series in by_kind.items() if any(series)},
        workspace_at=tuple(workspace_at),
        resident_bytes=resident.get(wanted, 0),
        peak_step=peak_step,
        peak_bytes=max(bytes_at, default=resident.get(wanted, 0)),
        peak_with_workspace_step=workspace_step,
        peak_with_workspace_bytes=max(with_workspace, default=resident.get(wanted, 0)),
        alive_at_peak=_describe(graph, at_peak, sizes, kinds, wanted),
        peak_bytes_by_device=dict(peaks),
    )


def loop_workspaces(
    graph: Graph, binding: Binding | None = None, bodies: Bodies = NO_BODIES
) -> dict[int, int]:
    """Scratch bytes of the loops of a graph: what the body holds at its peak beyond its inputs."""
    return {
        node.id: loop_workspace_bytes(graph, node, binding, bodies=bodies)
        for node in graph.nodes
        if node.regions
    }


def loop_workspace_bytes(
    graph: Graph,
    node: Node,
    binding: Binding | None = None,
    inner: NodeBytes | None = None,
    bodies: Bodies = NO_BODIES,
) -> int:
    """Most bytes that a trip of a loop holds beyond what it is handed and what it writes its results to.

    Args:
        graph: where the loop is.
        node: the loop.
        binding: values of symbolic dims around it.
        inner: workspace of a node of the body under the sizes of a trip; none by default. Loops inside the body are
            charged with their bodies, in the order that this body's schedule has for them.
        bodies: by node, the order of one trip of its loop.
    """
    most = 0
    for loop in node.regions:
        order = body_schedule(node, bodies)
        for _, sizes in trips(graph, node, loop, binding):
            scratch = {}
            for part in loop.body.nodes:
                if part.regions:
                    scratch[part.id] = loop_workspace_bytes(loop.body, part, sizes, inner, order.bodies)
                elif inner is not None:
                    scratch[part.id] = inner(loop.body, part, sizes)
            body = memory_profile(loop.body, order, binding=sizes, workspace=scratch)
            most = max(most, body.peak_with_workspace_bytes - body.resident_bytes)
    return most


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


def _play(graph: Graph, schedule: Schedule) -> list[list[_Bytes]]:
    """Instances alive during each node step, beyond those of the caller."""
    running = [graph.nodes[step.target] for step in schedule.node_steps()]
    variables: dict[int, _Bytes] = {}
    alive: dict[int, _Bytes] = {}
    created: Counter[int] = Counter()

    def make(storage: int, creator: int) -> _Bytes:
        instance = _Bytes(storage, created[storage], creator)
        created[storage] += 1
        alive[id(instance)] = instance
        return instance

    def release(instance: _Bytes) -> None:
        instance.references -= 1
        if instance.references == 0 and instance.creator is not None:
            del alive[id(instance)]

    def bind(value: int, instance: _Bytes) -> None:
        instance.references += 1
        if value in variables:
            release(variables[value])
        variables[value] = instance

    owned = {storage: _Bytes(storage, 0, None) for storage in graph.input_storages()}
    for value in graph.inputs:
        storage = graph.values[value].storage
        if storage is not None:
            bind(value, owned[storage])

    snapshots = []
    for node, deletions in zip(running, _deletions(graph, running), strict=True):
        fresh = {storage: make(storage, node.id) for storage in graph.created_storages(node)}
        results = []
        for value in node.outputs:
            storage = graph.values[value].storage
            if storage is not None:
                seen = fresh.get(storage) or variables[alias_operand(graph, node, storage)]
                results.append((value, seen))
        for value, instance in results:
            bind(value, instance)
        snapshots.append(list(alive.values()))
        for value in deletions:
            if value in variables:
                release(variables.pop(value))
    return snapshots


def _describe(
    graph: Graph, alive: list[_Bytes], sizes: tuple[int, ...], kinds: tuple[Kind, ...], device: str
) -> tuple[AliveStorage, ...]:
    rows = [
        AliveStorage(
            storage=instance.storage,
            occurrence=instance.occurrence,
            nbytes=sizes[instance.storage],
            kind=kinds[instance.storage],
            name=graph.storages[instance.storage].name,
            source=Source() if instance.creator is None else graph.nodes[instance.creator].source,
        )
        for instance in alive
        if graph.storages[instance.storage].device == device
    ]
    return tuple(sorted(rows, key=lambda row: (-row.nbytes, row.storage, row.occurrence)))
