"""Store, load and wait steps as lines of a program."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

import torch

from neaptide.analysis.liveness import Liveness
from neaptide.analysis.loops import Binding, trips
from neaptide.errors import LoweringError
from neaptide.ir.graph import Graph
from neaptide.ir.schedule import Schedule, Step, StepKind
from neaptide.lower.torch_calls import CallWriter
from neaptide.movers.host_pool import DEVICES, HostPool, make_mover
from neaptide.movers.mover import SlowMemory
from neaptide.movers.waiting_state import WaitingState


def host_pools(graph: Graph, schedule: Schedule, calls: CallWriter, slow: SlowMemory) -> Mapping[str, str]:
    """By device, the name of the pool that its storages wait in, those of the bodies of loops too. O(steps)."""
    if not schedule.has_transfers:
        return {}
    return {
        device: calls.bind("host", _pool(device, nbytes, slow), device)
        for device, nbytes in _most_bytes(graph, schedule, {}).items()
    }


def transfer_lines(
    graph: Graph,
    schedule: Schedule,
    liveness: Liveness,
    calls: CallWriter,
    pools: Mapping[str, str],
    waiting: WaitingState,
) -> Mapping[int, list[str]]:
    """The lines directly behind each step that runs a node, by its position; those at -1 are before the first.

    O(steps + bindings).
    """
    lines: dict[int, list[str]] = defaultdict(list)
    if not schedule.has_own_transfers:
        return lines
    bound, owned = _bound(liveness), set(graph.input_storages())
    used = {v for node in graph.nodes for v in (*node.inputs, *node.outputs)}
    stored: dict[tuple[int, int], str] = {}
    begins_away = schedule.away_at_begin()
    away = {(storage, 0) for storage in begins_away}
    is_last = _last_stores(schedule)
    holder = calls.bind("waiting", waiting) if begins_away or is_last else ""
    names = {
        storage: next(v for v in graph.inputs if graph.values[v].storage == storage and v in used)
        for storage in begins_away
    }
    if holder:
        agreed = (
            f"({graph.values[v].name!r}, {calls.names.variable(graph.values[v])}, "
            f"{pools[graph.storages[storage].device]})"
            for storage, v in names.items()
        )
        lines[-1].append(f"{holder}.agree({', '.join(agreed)})")
    position = -1
    for index, step in enumerate(schedule.steps):
        key = (step.target, step.occurrence)
        if step.runs_node:
            position += 1
        elif step.kind is StepKind.STORE:
            # An input that nothing needs is not handed over. Inputs and outputs are still bound behind the last step.
            kept = len(liveness.steps) if key in is_last else -1
            value = next(
                v
                for v, start, end in bound[key]
                if start <= position and (position < end - 1 or end == kept) and v in used
            )
            name = calls.names.variable(graph.values[value])
            stored[key] = calls.names.fresh(f"stored_{name}", key)
            owned_as = f", {graph.values[value].name!r}" if step.target in owned else ""
            pool = pools[graph.storages[step.target].device]
            lines[position].append(f"{stored[key]} = {pool}.store({name}{owned_as})")
        elif step.kind is StepKind.LOAD:
            if key not in stored:
                name = calls.names.variable(graph.values[names[step.target]])
                stored[key] = calls.names.fresh(f"stored_{name}", key)
                lines[position].append(f"{stored[key]} = {holder}.take({name})")
            lines[position].append(f"{stored[key]}.load()")
        elif step.kind is StepKind.WAIT and key in away:
            away.remove(key)
            lines[position] += [f"{stored[key]}.arrive()", f"del {stored.pop(key)}"]
        elif step.kind is StepKind.WAIT:
            away.add(key)
            lines[position].append(f"{stored[key]}.leave()")
            if is_last.get(key) == index:
                value = next(v for v, _, end in bound[key] if end == len(liveness.steps) and v in used)
                name = graph.values[value].name
                lines[position] += [
                    f"{holder}.keep({name!r}, {stored[key]})",
                    f"del {stored.pop(key)}",
                ]
    return lines


def _last_stores(schedule: Schedule) -> dict[tuple[int, int], int]:
    """Instances that are on the host when the schedule ends, with the index of the wait behind which they are."""
    last = {
        (step.target, step.occurrence): (index, step.kind)
        for index, step in enumerate(schedule.steps)
        if step.kind in {StepKind.STORE, StepKind.LOAD}
    }
    stored = {key: index for key, (index, kind) in last.items() if kind is StepKind.STORE}
    return {
        key: next(
            index
            for index in range(begun, len(schedule.steps))
            if schedule.steps[index].kind is StepKind.WAIT
            and (schedule.steps[index].target, schedule.steps[index].occurrence) == key
        )
        for key, begun in stored.items()
    }


def _pool(device: str, nbytes: int, slow: SlowMemory) -> HostPool:
    capacity_bytes = nbytes if slow.capacity_bytes is None else slow.capacity_bytes
    return HostPool(capacity_bytes, make_mover(torch.device(device), capacity_bytes, slow))


def _most_bytes(graph: Graph, schedule: Schedule, sizes: Binding) -> dict[str, int]:
    """By device, the most bytes of its storages that the schedule has on the host at once, in all trips of its loops."""
    live: dict[str, int] = defaultdict(int)
    most: dict[str, int] = defaultdict(int)
    away = {(storage, 0) for storage in schedule.away_at_begin()}
    for storage in schedule.away_at_begin():
        device = _device(graph, Step(StepKind.LOAD, storage))
        live[device] += graph.storages[storage].nbytes.evaluate(sizes)
        most[device] = live[device]
    for step in schedule.steps:
        key = (step.target, step.occurrence)
        if step.runs_node:
            for device, nbytes in _most_in_trips(graph, schedule, step, sizes):
                most[device] = max(most[device], live[device] + nbytes)
        elif step.kind is StepKind.STORE:
            device = _device(graph, step)
            live[device] += graph.storages[step.target].nbytes.evaluate(sizes)
            most[device] = max(most[device], live[device])
        elif step.kind is StepKind.WAIT and key in away:
            away.remove(key)
            live[_device(graph, step)] -= graph.storages[step.target].nbytes.evaluate(sizes)
        elif step.kind is StepKind.WAIT:
            away.add(key)
    return most


def _most_in_trips(graph: Graph, schedule: Schedule, step: Step, sizes: Binding) -> Iterator[tuple[str, int]]:
    """The same of each kind of trip of the loop that a step runs; nothing where its body moves nothing."""
    body = schedule.bodies.get(step.target)
    if body is not None and body.has_transfers:
        node = graph.nodes[step.target]
        loop = node.regions[0]
        for _, within in trips(graph, node, loop, sizes):
            yield from _most_bytes(loop.body, body, within).items()


def _device(graph: Graph, step: Step) -> str:
    storage = graph.storages[step.target]
    if storage.device.partition(":")[0] not in DEVICES:
        raise LoweringError(
            f"{storage.name or f'storage {storage.id}'} is to be stored on the host from {storage.device}",
            why=f"storages are stored from {' and '.join(DEVICES)} alone",
        )
    return storage.device


def _bound(liveness: Liveness) -> dict[tuple[int, int], list[tuple[int, int, int]]]:
    """For each storage instance, the values that are bound to it, each with the start and the end of that."""
    found: dict[tuple[int, int], list[tuple[int, int, int]]] = defaultdict(list)
    for binding in liveness.bindings:
        if binding.instance is not None:
            instance = liveness.instances[binding.instance]
            key = (instance.storage, instance.occurrence)
            found[key].append((binding.value, binding.start, binding.end))
    return found
