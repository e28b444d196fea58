"""Bytes at every step of a schedule: the slow reference evaluator, and the final checker of every plan.

It adds up the storages that are there by the names that hold them (`analysis.liveness`): the bytes of each come at the step
where it comes, and go where it goes. Everything faster must agree.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from neaptide.analysis.kinds import storage_kinds
from neaptide.analysis.liveness import Instance, OnHost, Presence, presences
from neaptide.analysis.loops import (
    NO_BODIES,
    NOTHING_IN_BODIES,
    Binding,
    Bodies,
    InBodies,
    body_schedule,
    trips,
)
from neaptide.analysis.sizes import evaluate_storage_bytes, main_device, on_device
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node, Source
from neaptide.ir.schedule import Schedule
from neaptide.ir.values import Kind


@dataclass(frozen=True, slots=True)
class LiveStorage:
    """A storage instance that is there at the peak, with the source of its creator."""

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
        bytes_at: for each node step, caller-owned storages included, workspace not. Storages that the body of a loop
            holds while it runs are part of it, at the most of any trip.
        persistent_bytes: those included that are on the host when the schedule begins.
        peak_step: the first highest step of `bytes_at`.
        live_at_peak: largest first; storages of the bodies of loops are not listed.
        host_bytes_at: for each node step the most bytes of this device's storages that are kept on the host, from its
            begin to that of the next one, those of the bodies of loops included.
    """

    device: str
    bytes_at: tuple[int, ...]
    bytes_at_by_kind: Mapping[Kind, tuple[int, ...]]
    workspace_at: tuple[int, ...]
    persistent_bytes: int
    peak_step: int | None
    peak_bytes: int
    peak_with_workspace_step: int | None
    peak_with_workspace_bytes: int
    live_at_peak: tuple[LiveStorage, ...]
    host_bytes_at: tuple[int, ...]
    peak_host_bytes: int


def memory_profile(
    graph: Graph,
    schedule: Schedule,
    *,
    binding: Mapping[str, int] | None = None,
    workspace: Mapping[int, int] | None = None,
    storage_bytes: Mapping[int, int] | None = None,
    device: str | None = None,
    in_bodies: InBodies = NOTHING_IN_BODIES,
) -> MemoryProfile:
    """Play a schedule and count the bytes of storages at every step.

    O(size of the schedule + steps x storages on the host).

    Args:
        workspace: scratch bytes by node id; of a loop all that its body needs, storages included. A loop that is not
            in it is charged with these storages.
    """
    sizes = evaluate_storage_bytes(graph, binding, storage_bytes)
    wanted = device if device is not None else main_device(graph, sizes)
    inside = loop_workspaces(graph, binding, schedule.bodies, in_bodies.of_storages)
    of_loops, scratch = (on_device(graph, wanted, known) for known in (inside, workspace or {}))
    found, on_host = presences(graph, schedule)
    kinds = storage_kinds(graph)
    running = [graph.nodes[step.target] for step in schedule.node_steps()]

    held: dict[Kind, list[tuple[int, int, int]]] = defaultdict(list)
    for instance, start, end in found:
        if graph.storages[instance.storage].device == wanted:
            held[kinds[instance.storage]].append((start, end, sizes[instance.storage]))
    for at, node in enumerate(running):
        if of_loops[node.id]:
            held[Kind.TEMPORARY].append((at, at + 1, of_loops[node.id]))
    counted = {kind: _bytes_at(spans, len(running)) for kind, spans in held.items()}
    bytes_at = sum(counted.values(), np.zeros(len(running), np.int64))
    persistent = sum(sizes[s] for s in graph.input_storages() if graph.storages[s].device == wanted)

    workspace_at = [max(scratch[node.id] - of_loops[node.id], 0) for node in running]
    away_in_bodies = loop_host_bytes(graph, schedule.bodies, wanted, binding)
    counted_sizes = [sizes[s.id] if s.device == wanted else 0 for s in graph.storages]
    in_trips = [away_in_bodies.get(node.id, 0) for node in running]
    host_bytes_at = _most_on_host(on_host, in_trips, counted_sizes)
    with_workspace = bytes_at + np.array(workspace_at, dtype=np.int64)
    peak_step = int(bytes_at.argmax()) if running else None
    at_peak = [Presence(Instance(s, 0, 0, 0, is_persistent=True), 0, 0) for s in graph.input_storages()]
    if peak_step is not None:
        at_peak = [one for one in found if one.start <= peak_step < one.end]
    return MemoryProfile(
        device=wanted,
        bytes_at=tuple(bytes_at.tolist()),
        bytes_at_by_kind={
            kind: tuple(counted[kind].tolist()) for kind in Kind if kind in counted and counted[kind].any()
        },
        workspace_at=tuple(workspace_at),
        persistent_bytes=persistent,
        peak_step=peak_step,
        peak_bytes=int(bytes_at.max()) if running else persistent,
        peak_with_workspace_step=int(with_workspace.argmax()) if running else None,
        peak_with_workspace_bytes=int(with_workspace.max()) if running else persistent,
        live_at_peak=_described(graph, running, at_peak, sizes, wanted),
        host_bytes_at=tuple(host_bytes_at),
        peak_host_bytes=max(host_bytes_at, default=0),
    )


def _most_on_host(on_host: Iterable[OnHost], in_trips: list[int], sizes: list[int]) -> list[int]:
    """Most bytes on the host from the begin of each step to that of the next one."""
    most = list(in_trips)
    for position, storages, is_running in on_host:
        nbytes = sum(sizes[s] for s in storages) + (in_trips[position] if is_running else 0)
        most[position] = max(most[position], nbytes)
    return most


def _bytes_at(spans: Iterable[tuple[int, int, int]], steps: int) -> NDArray[np.int64]:
    """Bytes that are held while each step runs, from (start, end, bytes)."""
    change = np.zeros(steps + 1, dtype=np.int64)
    for start, end, nbytes in spans:
        change[start] += nbytes
        change[end] -= nbytes
    return np.cumsum(change[:steps])


def _described(
    graph: Graph, running: list[Node], live: list[Presence], sizes: tuple[int, ...], device: str
) -> tuple[LiveStorage, ...]:
    kinds = storage_kinds(graph)
    rows = [
        LiveStorage(
            storage=one.storage,
            occurrence=one.occurrence,
            nbytes=sizes[one.storage],
            kind=kinds[one.storage],
            name=graph.storages[one.storage].name,
            source=Source() if one.is_persistent else running[one.start].source,
        )
        for one, _, _ in live
        if graph.storages[one.storage].device == device
    ]
    return tuple(sorted(rows, key=lambda row: (-row.nbytes, row.storage, row.occurrence)))


def loop_workspaces(
    graph: Graph,
    binding: Binding | None = None,
    bodies: Bodies = NO_BODIES,
    known: InBodies = NOTHING_IN_BODIES,
) -> dict[int, int]:
    """By loop of a graph, what `loop_workspace_bytes` says of it; `known` is of all bodies."""
    return {
        node.id: loop_workspace_bytes(graph, node, binding, known.within(node.id), bodies)
        for node in graph.nodes
        if node.regions
    }


def loop_workspace_bytes(
    graph: Graph,
    node: Node,
    binding: Binding | None = None,
    known: InBodies = NOTHING_IN_BODIES,
    bodies: Bodies = NO_BODIES,
) -> int:
    """Most bytes that a trip holds beyond what it is handed and writes its results to; `known` is of the body."""
    most = 0
    for loop in node.regions:
        order = body_schedule(node, bodies)
        for _, sizes in trips(graph, node, loop, binding):
            held = {**known.own_workspace, **loop_workspaces(loop.body, sizes, order.bodies, known)}
            body = memory_profile(
                loop.body,
                order,
                binding=sizes,
                workspace=held,
                storage_bytes=known.own_storages,
                in_bodies=known,
            )
            most = max(most, body.peak_with_workspace_bytes - body.persistent_bytes)
    return most


def loop_host_bytes(
    graph: Graph, bodies: Bodies, device: str, binding: Binding | None = None
) -> dict[int, int]:
    """Most bytes that a trip of a loop has on the host, by loop; only loops that move anything."""
    found = {}
    for number, order in bodies.items():
        if order.has_transfers:
            node = graph.nodes[number]
            found[number] = max(
                memory_profile(loop.body, order, binding=sizes, device=device).peak_host_bytes
                for loop in node.regions
                for _, sizes in trips(graph, node, loop, binding)
            )
    return found
