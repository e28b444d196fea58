"""Store, load and wait steps as lines of a program."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from neaptide.analysis.liveness import Liveness
from neaptide.errors import LoweringError
from neaptide.ir.graph import Graph
from neaptide.ir.schedule import Schedule, Step, StepKind
from neaptide.lower.host_pool import HostPool
from neaptide.lower.torch_calls import CallWriter


def transfer_lines(
    graph: Graph, schedule: Schedule, liveness: Liveness, calls: CallWriter
) -> Mapping[int, list[str]]:
    """The lines directly behind each step that runs a node, by its position. O(steps + bindings).

    Raises:
        LoweringError: for a storage that is not on the CPU: its copies are not run yet.
    """
    lines: dict[int, list[str]] = defaultdict(list)
    if not schedule.has_transfers:
        return lines
    pool = calls.bind("host", HostPool())
    bound = _bound(liveness)
    stored: dict[tuple[int, int], str] = {}
    away: set[tuple[int, int]] = set()
    position = -1
    for step in schedule.steps:
        key = (step.target, step.occurrence)
        if step.runs_node:
            position += 1
        elif step.kind is StepKind.STORE:
            _check_device(graph, step)
            value = next(v for v, start, end in bound[key] if start <= position < end - 1)
            name = calls.names.variable(graph.values[value])
            stored[key] = calls.names.fresh(f"stored_{name}", key)
            lines[position].append(f"{stored[key]} = {pool}.store({name})")
        elif step.kind is StepKind.LOAD:
            lines[position].append(f"{stored[key]}.load()")
        elif step.kind is StepKind.WAIT and key in away:
            away.remove(key)
            lines[position].append(f"del {stored.pop(key)}")
        elif step.kind is StepKind.WAIT:
            away.add(key)
            lines[position].append(f"{stored[key]}.leave()")
    return lines


def _bound(liveness: Liveness) -> dict[tuple[int, int], list[tuple[int, int, int]]]:
    """For each storage instance, the values that are bound to it, each with the start and the end of that."""
    found: dict[tuple[int, int], list[tuple[int, int, int]]] = defaultdict(list)
    for binding in liveness.bindings:
        if binding.instance is not None:
            instance = liveness.instances[binding.instance]
            key = (instance.storage, instance.occurrence)
            found[key].append((binding.value, binding.start, binding.end))
    return found


def _check_device(graph: Graph, step: Step) -> None:
    storage = graph.storages[step.target]
    if storage.device != "cpu":
        raise LoweringError(
            f"{storage.name or f'storage {storage.id}'} is to be stored on the host from {storage.device}",
            why="storages are stored from the CPU alone; copies of other devices are not run yet",
        )
