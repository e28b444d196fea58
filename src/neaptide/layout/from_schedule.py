"""The layout problem of a graph under a schedule: one buffer for each storage instance that the program makes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from neaptide.analysis.kinds import storage_kinds
from neaptide.analysis.liveness import Liveness, compute_liveness
from neaptide.analysis.profile_bytes import loop_workspaces
from neaptide.analysis.sizes import evaluate_storage_bytes, main_device, node_device
from neaptide.errors import LayoutProblemError
from neaptide.ir.graph import Graph
from neaptide.ir.schedule import Schedule
from neaptide.layout.problem import Buffer, LayoutProblem

PERSISTENT: Final = "persistent"
RESULTS: Final = "results"
OUTSIDE: Final = -1
"""The buffer of an instance that has no place in the arena, in `ScheduleBuffers.buffer_of`."""


@dataclass(frozen=True, slots=True)
class ScheduleBuffers:
    """What a schedule puts into the arena of one device, and what stays outside."""

    problem: LayoutProblem  # steps are positions of node steps
    liveness: Liveness
    buffer_of: tuple[int, ...]  # by index in `liveness.instances`, its buffer, or `OUTSIDE`
    device: str
    persistent_bytes: int  # of what the caller owns, outside
    handed_back_bytes: int  # of results that outlive the step, when they are kept outside


def schedule_buffers(
    graph: Graph,
    schedule: Schedule,
    *,
    binding: Mapping[str, int] | None = None,
    storage_bytes: Mapping[int, int] | None = None,
    workspace: Mapping[int, int] | None = None,
    device: str | None = None,
    alignment: int = 64,
    inside: Collection[str] = (),
) -> ScheduleBuffers:
    """Buffers of all storage instances on a device. O(size of the schedule).

    Inputs and outputs of one step are live together. Instances without bytes have no buffer.

    Args:
        storage_bytes: sizes by storage id that replace the recorded ones.
        workspace: scratch bytes by node id, each a buffer of one step; loops that are missing are charged with
            their body. None leaves all scratch bytes out: kernels take them from the allocator.
        device: whose arena; by default the one with the largest total of storages.
        alignment: of every buffer, in bytes.
        inside: what has buffers as well: `PERSISTENT`, what the caller owns, for the whole time; `RESULTS`, what the program
            hands back, which the next step then overwrites while the caller may still hold it.

    Raises:
        LayoutProblemError: an alignment that is no power of two, sizes out of range, or steps that take storages to
            the host and back, which would need a place for each return.
    """
    if schedule.has_own_transfers:
        raise LayoutProblemError("a schedule that stores and loads has no layout yet")
    sizes = evaluate_storage_bytes(graph, binding, storage_bytes)
    where = device if device is not None else main_device(graph, sizes)
    kinds = storage_kinds(graph)
    liveness = compute_liveness(graph, schedule)
    handed_back = liveness.handed_back(graph)
    buffers: list[Buffer] = []
    buffer_of: list[int] = []
    persistent = kept = 0
    for index, instance in enumerate(liveness.instances):
        storage = graph.storages[instance.storage]
        nbytes = sizes[storage.id] if storage.device == where else 0
        outside = nbytes == 0
        if nbytes and instance.is_persistent:
            outside = PERSISTENT not in inside
            persistent += nbytes * outside
        elif nbytes and index in handed_back:
            outside = RESULTS not in inside
            kept += nbytes * outside
        if outside or not liveness.steps:
            buffer_of.append(OUTSIDE)
            continue
        buffer_of.append(len(buffers))
        again = f"@{instance.occurrence}" if instance.occurrence else ""
        buffers.append(
            Buffer(
                f"{storage.name or 'storage'}#{storage.id}{again}",
                instance.start,
                instance.end,
                nbytes,
                alignment,
                kind=str(kinds[storage.id]),
            )
        )
    if workspace is not None:
        scratch = {**loop_workspaces(graph, binding, schedule.bodies), **workspace}
        for position, step in enumerate(liveness.steps):
            node = graph.nodes[step.target]
            nbytes = scratch.get(node.id, 0)
            if nbytes and node_device(graph, node) == where:
                buffers.append(
                    Buffer(
                        f"workspace@{position}", position, position + 1, nbytes, alignment, kind="workspace"
                    )
                )
    return ScheduleBuffers(
        LayoutProblem(tuple(buffers), graph.name), liveness, tuple(buffer_of), where, persistent, kept
    )
