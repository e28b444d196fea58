"""Which results can have a place in an arena, why others cannot, and which of these are worth a copy into it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from neaptide.cost.devices import Device
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node
from neaptide.ir.registry import OpRegistry, Trait
from neaptide.ir.values import DTYPE_BYTES, Value
from neaptide.lower.out_variants import reads_whole_storage
from neaptide.ops.structural import CONSTANT_OP, HOST_FUNCTIONS
from neaptide.symbolic.size_expr import SizeExpr
from neaptide.transform.fission.split import is_dense

HANDED_BACK: Final = "it is handed back"
LEFT_OUT: Final[Mapping[str, str]] = {
    "none": "nothing is copied",
    "cheap": "its copy would take too long or lift the peak",
}
"""Why a result that could be copied is not, by `ArenaOptions.copies`."""


def misfit(
    graph: Graph, registry: OpRegistry, node: Node, storage: int, nbytes: SizeExpr, *, is_again: bool
) -> str:
    """Why the result of a node that creates a storage cannot have a place at any size; empty when it can. O(outputs).

    Args:
        is_again: another operation stands in, since the node writes and is run again.
    """
    if len(slots_of(graph, node, storage)) > 1:
        return "several results lie in it"
    if node.op == CONSTANT_OP or node.op in HOST_FUNCTIONS:
        return "it is made on the host"
    if registry.find(node.op) is None and not node.regions:
        return "the op table has no row for what makes it"
    if is_again:
        return "another operation stands in when it is computed again"
    value = graph.values[node.outputs[slots_of(graph, node, storage)[0]]]
    return "" if _fills(value, nbytes) else "it does not fill its storage"


def slots_of(graph: Graph, node: Node, storage: int) -> list[int]:
    """The outputs of a node that lie in a storage."""
    return [slot for slot, v in enumerate(node.outputs) if graph.values[v].storage == storage]


def barred_storages(graph: Graph, registry: OpRegistry) -> dict[int, str]:
    """Storages that something looks at beyond the tensor that it is given, with the reason; loops look inside."""
    barred: dict[int, str] = {}
    for node in graph.nodes:
        if node.op == CONSTANT_OP or node.op in HOST_FUNCTIONS:
            continue
        for loop in node.regions:
            inside = barred_storages(loop.body, registry)
            handed = (*node.inputs, *(node.outputs[merge.output] for merge in loop.merges))
            for value, seen in zip(handed, loop.body.inputs, strict=True):
                storage, within = graph.values[value].storage, loop.body.values[seen].storage
                if storage is not None and within in inside:
                    barred[storage] = inside[within]
        if node.regions:
            continue
        row = registry.find(node.op)
        if row is None:
            reason = f"{node.op}, which the op table has no row for, reads it"
        elif row.is_a(Trait.RECURRENT):
            # aten/src/ATen/native/mkldnn/RNN.cpp clones the cell state where it shares a storage with the hidden
            # state, as everything in an arena does.
            reason = f"{node.op} reads it and copies states that share a storage"
        elif reads_whole_storage(node.op):
            reason = f"{node.op} counts from the start of its storage"
        else:
            continue
        for value in node.inputs:
            storage = graph.values[value].storage
            if storage is not None:
                barred[storage] = reason
    return barred


def _fills(value: Value, nbytes: SizeExpr) -> bool:
    count = SizeExpr.const(DTYPE_BYTES[value.dtype])
    for extent in value.shape:
        count = count * extent
    return count == nbytes and value.offset == SizeExpr.const(0) and is_dense(value)


Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
_TOUCHES = 2  # a copy reads every byte once and writes it once


@dataclass(frozen=True, slots=True, eq=False)
class Spans:
    """Storages that a run makes, each with its bytes from one step to another."""

    starts: Ints
    ends: Ints  # one past the last step
    nbytes: Ints
    steps: int  # of the run

    def bytes_at(self, which: Flags, *, only_first: bool = False) -> Ints:
        """By step, the bytes of some; with `only_first` each is there at its first step alone, as the source of a copy is."""
        change = np.zeros(self.steps + 1, dtype=np.int64)
        starts, nbytes = self.starts[which], self.nbytes[which]
        np.add.at(change, starts, nbytes)
        np.add.at(change, starts + 1 if only_first else self.ends[which], -nbytes)
        found: Ints = np.cumsum(change)[:-1]
        return found

    def outside_at(self, is_inside: Flags, is_copied: Flags) -> Ints:
        """By step, bytes of what is not in the arena, and of the sources of copies into it."""
        return self.bytes_at(~is_inside) + self.bytes_at(is_copied, only_first=True)

    def copy_seconds(self, which: Flags, device: Device) -> float:
        """Predicted time of one copy of each."""
        traffic = _TOUCHES * int(self.nbytes[which].sum())
        return int(which.sum()) * device.launch_s + traffic / device.main_space.bandwidth_bytes_per_s

    def cheap_copies(self, is_open: Flags, is_inside: Flags, device: Device, seconds: float) -> Flags:
        """Which of those that may be copied are: those that live longest, while all copies stay cheap. O(open ones x steps).

        A copy holds its source and its place together for one step, so one that lifts the peak of the arena plus that of
        what is outside is not made.

        Args:
            is_inside: what is in the arena in any case.
            seconds: that all copies together may take.
        """
        arena, rest = self.bytes_at(is_inside), self.bytes_at(~is_inside)
        peak = int(arena.max(initial=0) + rest.max(initial=0))
        chosen = np.zeros_like(is_open)
        keys = np.flatnonzero(is_open)
        for key in keys[np.argsort(self.starts[keys] - self.ends[keys], kind="stable")].tolist():
            start, end, nbytes = int(self.starts[key]), int(self.ends[key]), int(self.nbytes[key])
            cost = device.launch_s + _TOUCHES * nbytes / device.main_space.bandwidth_bytes_per_s
            if cost > seconds:
                continue
            arena[start:end] += nbytes
            rest[start + 1 : end] -= nbytes  # the source is there for the step that copies
            now = int(arena.max() + rest.max())
            if now > peak:
                arena[start:end] -= nbytes
                rest[start + 1 : end] += nbytes
                continue
            peak = now
            seconds -= cost
            chosen[key] = True
        return chosen
