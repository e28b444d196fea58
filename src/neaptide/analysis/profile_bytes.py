"""Bytes at every step of a schedule: the slow reference evaluator, and the final judge of every plan.

It adds up the storages that are there when `analysis.play_bytes` plays the schedule with Python variables: the bytes of
each come at the step where it comes, and go where it goes. Everything faster must agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate

from neaptide.analysis.kinds import storage_kinds
from neaptide.analysis.loops import (
    NO_BODIES,
    NOTHING_IN_BODIES,
    Binding,
    Bodies,
    InBodies,
    body_schedule,
    trips,
)
from neaptide.analysis.play_bytes import PlayedInstance, Presence, play
from neaptide.analysis.sizes import evaluate_storage_bytes, main_device, node_device
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node, Source
from neaptide.ir.schedule import Schedule
from neaptide.ir.values import Kind


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
        bytes_at: for each node step, caller-owned storages included, workspace not. Storages that the body of a loop
            holds while it runs are part of it, at the most of any trip.
        bytes_at_by_kind: the same, split; the kinds add up to `bytes_at`.
        workspace_at: scratch bytes of each node step.
        resident_bytes: of the storages that the caller owns, those included that are on the host when the schedule
            begins.
        peak_step: position of the first highest step of `bytes_at`; None when there are no steps.
        peak_bytes: highest `bytes_at`.
        peak_with_workspace_step: position of the first highest step with workspace added.
        peak_with_workspace_bytes: bytes at that step.
        alive_at_peak: what is there at `peak_step`, largest first; storages of the bodies of loops are not listed.
        peak_bytes_by_device: `peak_bytes` of every device.
        host_bytes_at: for each node step the most bytes of this device's storages that are kept on the host, from its
            begin to that of the next one, those of the bodies of loops included; zeros without transfers.
        peak_host_bytes: highest `host_bytes_at`.
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
        graph: the program.
        schedule: its steps, legal; `FREE` steps are ignored, since they follow from the order.
        binding: values of symbolic dims.
        workspace: scratch bytes by node id; of a loop all that its body needs, storages included. A loop that is not
            in it is charged with these storages.
        storage_bytes: sizes by storage id that replace the recorded ones.
        device: whose bytes are wanted; by default the one with the largest total of storages.
        in_bodies: what is known of bytes in bodies beside their graphs; of it the sizes of storages are of use.
    """
    sizes = evaluate_storage_bytes(graph, binding, storage_bytes)
    wanted = device if device is not None else main_device(graph, sizes)
    of_loops = loop_workspaces(graph, binding, schedule.bodies, in_bodies.of_storages)
    played = play(graph, schedule)
    kinds = storage_kinds(graph)

    running = [graph.nodes[step.target] for step in schedule.node_steps()]
    steps = len(running)
    presences = [*played.of_caller, *played.presences]
    held = [
        _Held(p.start, p.end, sizes[s], graph.storages[s].device, kinds[s])
        for p in presences
        for s in (p.instance.storage,)
    ]
    held += [
        _Held(at, at + 1, of_loops[node.id], node_device(graph, node), Kind.TEMPORARY)
        for at, node in enumerate(running)
        if node.id in of_loops
    ]
    on_device: dict[str, list[_Held]] = {storage.device: [] for storage in graph.storages}
    for item in held:
        on_device.setdefault(item.device, []).append(item)
    resident = Counter(dict.fromkeys(on_device, 0))
    for storage in graph.input_storages():
        resident[graph.storages[storage].device] += sizes[storage]
    peaks = {
        where: max(_bytes_at(there, steps), default=resident[where]) for where, there in on_device.items()
    }
    here = on_device.get(wanted, [])
    bytes_at = _bytes_at(here, steps)
    by_kind = {kind: _bytes_at([item for item in here if item.kind is kind], steps) for kind in Kind}

    scratch = workspace or {}
    workspace_at = [
        max(scratch.get(node.id, 0) - of_loops.get(node.id, 0), 0)
        if node_device(graph, node) == wanted
        else 0
        for node in running
    ]
    away_in_bodies = loop_host_bytes(graph, schedule.bodies, wanted, binding)
    in_trips = [away_in_bodies.get(node.id, 0) for node in running]
    host_bytes_at = list(in_trips)
    for position, kept, is_running in played.on_host:
        nbytes = sum(sizes[i.storage] for i in kept if graph.storages[i.storage].device == wanted)
        nbytes += in_trips[position] if is_running else 0
        host_bytes_at[position] = max(host_bytes_at[position], nbytes)
    with_workspace = [a + b for a, b in zip(bytes_at, workspace_at, strict=True)]
    peak_step = bytes_at.index(max(bytes_at)) if bytes_at else None
    workspace_step = with_workspace.index(max(with_workspace)) if with_workspace else None
    at_peak = [Presence(PlayedInstance(storage, 0, None), 0, 0) for storage in graph.input_storages()]
    if peak_step is not None:
        at_peak = [p for p in presences if p.start <= peak_step < p.end]
    return MemoryProfile(
        device=wanted,
        bytes_at=bytes_at,
        bytes_at_by_kind={kind: series for kind, series in by_kind.items() if any(series)},
        workspace_at=tuple(workspace_at),
        resident_bytes=resident.get(wanted, 0),
        peak_step=peak_step,
        peak_bytes=max(bytes_at, default=resident.get(wanted, 0)),
        peak_with_workspace_step=workspace_step,
        peak_with_workspace_bytes=max(with_workspace, default=resident.get(wanted, 0)),
        alive_at_peak=_describe(graph, at_peak, sizes, kinds, wanted),
        peak_bytes_by_device=peaks,
        host_bytes_at=tuple(host_bytes_at),
        peak_host_bytes=max(host_bytes_at, default=0),
    )


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
    """Most bytes that a trip of a loop holds beyond what it is handed and what it writes its results to.

    Args:
        graph: where the loop is.
        node: the loop.
        binding: values of symbolic dims around it.
        known: of the body and of the bodies inside it; nothing by default, and then only storages are counted, as large
            as the graph says.
        bodies: by node, the order of one trip of its loop.
    """
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
            most = max(most, body.peak_with_workspace_bytes - body.resident_bytes)
    return most


def loop_host_bytes(
    graph: Graph, bodies: Bodies, device: str, binding: Binding | None = None
) -> dict[int, int]:
    """Most bytes that a trip of a loop has on the host, by loop; only loops that move anything.

    Args:
        graph: where the loops are.
        bodies: by loop, the order of one trip.
        device: whose storages are counted.
        binding: values of symbolic dims around the loops.
    """
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


@dataclass(frozen=True, slots=True)
class _Held:
    """Bytes that are there while the steps `[start, end)` run."""

    start: int
    end: int
    nbytes: int
    device: str
    kind: Kind


def _bytes_at(held: Iterable[_Held], steps: int) -> tuple[int, ...]:
    """Bytes that are held while each step runs."""
    change = [0] * (steps + 1)
    for item in held:
        change[item.start] += item.nbytes
        change[item.end] -= item.nbytes
    return tuple(accumulate(change[:steps]))


def _describe(
    graph: Graph, alive: list[Presence], sizes: tuple[int, ...], kinds: tuple[Kind, ...], device: str
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
        for instance in (presence.instance for presence in alive)
        if graph.storages[instance.storage].device == device
    ]
    return tuple(sorted(rows, key=lambda row: (-row.nbytes, row.storage, row.occurrence)))
