"""Store, load and wait steps as lines of a program."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import torch

from neaptide.analysis.liveness import Liveness
from neaptide.analysis.profile_bytes import memory_profile
from neaptide.copy_engines.copy_engine import SlowMemory
from neaptide.copy_engines.host_pool import DEVICES, HostPool, make_copy_engine
from neaptide.copy_engines.waiting_state import WaitingState
from neaptide.errors import LoweringError
from neaptide.ir.graph import Graph
from neaptide.ir.schedule import Schedule, StepKind
from neaptide.lower.torch_calls import CallWriter


def host_pools(graph: Graph, schedule: Schedule, calls: CallWriter, slow: SlowMemory) -> Mapping[str, str]:
    """By device, the name of the pool that its storages wait in, those of the bodies of loops too. O(steps)."""
    if not schedule.has_transfers:
        return {}
    return {
        device: calls.bind("host", _pool(graph, schedule, device, slow), device)
        for device in sorted(_devices(graph, schedule))
    }


def transfer_lines(
    graph: Graph,
    schedule: Schedule,
    liveness: Liveness,
    calls: CallWriter,
    pools: Mapping[str, str],
    waiting: WaitingState,
) -> Mapping[int, list[str]]:
    """The lines directly after each step that runs a node, by its position; those at -1 are before the first. O(steps + bindings)."""
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
            # An input that nothing needs is not handed over. Inputs and outputs are still bound after the last step.
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
    """Instances that are on the host when the schedule ends, with the index of the wait after which they are."""
    begun: dict[tuple[int, int], StepKind] = {}
    found: dict[tuple[int, int], int] = {}
    for index, step in enumerate(schedule.steps):
        key = (step.target, step.occurrence)
        if step.kind in {StepKind.STORE, StepKind.LOAD}:
            begun[key] = step.kind
            found.pop(key, None)
        elif step.kind is StepKind.WAIT and begun.get(key) is StepKind.STORE:
            found.setdefault(key, index)
    return found


def _pool(graph: Graph, schedule: Schedule, device: str, slow: SlowMemory) -> HostPool:
    nbytes = slow.capacity_bytes
    if nbytes is None:
        nbytes = memory_profile(graph, schedule, device=device).peak_host_bytes
    return HostPool(nbytes, make_copy_engine(torch.device(device), nbytes, slow))


def _devices(graph: Graph, schedule: Schedule) -> set[str]:
    """Devices whose storages the schedule stores, those of the bodies of loops too."""
    found = set()
    for target in {step.target for step in schedule.steps if step.moves_bytes}:
        storage = graph.storages[target]
        if storage.device.partition(":")[0] not in DEVICES:
            raise LoweringError(
                f"{storage.name or f'storage {storage.id}'} is to be stored on the host from {storage.device}",
                why=f"storages are stored from {' and '.join(DEVICES)} alone",
            )
        found.add(storage.device)
    for node, body in schedule.bodies.items():
        found |= _devices(graph.nodes[node].regions[0].body, body)
    return found


def _bound(liveness: Liveness) -> dict[tuple[int, int], list[tuple[int, int, int]]]:
    """For each storage instance, the values that are bound to it, each with the start and the end of that."""
    found: dict[tuple[int, int], list[tuple[int, int, int]]] = defaultdict(list)
    for binding in liveness.bindings:
        if binding.instance is not None:
            instance = liveness.instances[binding.instance]
            key = (instance.storage, instance.occurrence)
            found[key].append((binding.value, binding.start, binding.end))
    return found
