"""The peak of one schedule at any shape: which storages are there at each step does not depend on how large they are.

A step holds so many storages of each size, and sizes are few: a graph of thousands of operations has some dozens. So the
bytes at all steps are a matrix of counts times the sizes at the shape.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from neaptide.analysis.play_bytes import play
from neaptide.analysis.sizes import evaluate_storage_bytes, main_device, node_device
from neaptide.errors import UsageError
from neaptide.ir.graph import Graph
from neaptide.ir.schedule import Schedule
from neaptide.symbolic.size_expr import SizeExpr

# Rows that are nowhere above another are left out, which takes a comparison with each that stays.
_ROWS_COMPARED: Final = 512


class ShapePeaks:
    """Peaks of a schedule at given shapes. O(steps x sizes + storages) to make.

    Args:
        graph: with symbolic dims, or without; no loops.
        schedule: legal. Repetitions are counted as they are played.
        shape: one in the range; it tells which device's bytes are counted.
        workspace: scratch bytes by node id. They are taken as they are, whatever the shape.

    Raises:
        UsageError: the graph has a loop; what its body needs depends on the shape in another way.
    """

    def __init__(
        self,
        graph: Graph,
        schedule: Schedule,
        shape: Mapping[str, int],
        workspace: Mapping[int, int] | None = None,
    ) -> None:
        if any(node.regions for node in graph.nodes):
            raise UsageError("the peak of a graph with loops is not known for every shape")
        device = main_device(graph, evaluate_storage_bytes(graph, shape))
        numbers: dict[SizeExpr, int] = {}
        size_of = {
            storage.id: numbers.setdefault(storage.nbytes, len(numbers))
            for storage in graph.storages
            if storage.device == device
        }
        self._sizes = tuple(numbers)
        running = [graph.nodes[step.target] for step in schedule.node_steps()]
        change = np.zeros((len(running) + 1, len(numbers)), dtype=np.int64)
        for storage in graph.input_storages():
            if storage in size_of:
                change[0, size_of[storage]] += 1
        self._resident = change[0].copy()
        for presence in play(graph, schedule).presences:
            if (number := size_of.get(presence.instance.storage)) is not None:
                change[presence.start, number] += 1
                change[presence.end, number] -= 1
        counts = np.cumsum(change, axis=0)[: len(running)]
        scratch = workspace or {}
        beside = np.array(
            [scratch.get(node.id, 0) if node_device(graph, node) == device else 0 for node in running],
            dtype=np.int64,
        )
        nothing = np.zeros(len(running), dtype=np.int64)
        self._plain = _highest(counts, nothing, self._resident)
        self._with_workspace = _highest(counts, beside, self._resident)

    def peak_bytes(self, shape: Mapping[str, int]) -> int:
        """The highest bytes of storages at a shape, those of the caller included. O(rows that are left x sizes).

        Raises:
            SymbolicError: a dim has no value.
        """
        return self._at(shape, *self._plain)

    def peak_with_workspace_bytes(self, shape: Mapping[str, int]) -> int:
        """The same with scratch bytes added."""
        return self._at(shape, *self._with_workspace)

    def _at(
        self, shape: Mapping[str, int], counts: npt.NDArray[np.int64], beside: npt.NDArray[np.int64]
    ) -> int:
        sizes = np.array([size.evaluate(shape) for size in self._sizes], dtype=np.int64)
        return int((counts @ sizes + beside).max(initial=0))


def _highest(
    counts: npt.NDArray[np.int64], beside: npt.NDArray[np.int64], resident: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Rows of which one is the highest at every shape: without those that have no more of anything than another."""
    rows = np.unique(np.column_stack([counts, beside]), axis=0)
    if not len(rows):
        rows = np.append(resident, 0)[np.newaxis]
    kept: list[Sequence[np.int64]] = []
    for row in rows[np.argsort(-rows.sum(axis=1), kind="stable")]:
        if len(kept) < _ROWS_COMPARED and kept and (np.array(kept) >= row).all(axis=1).any():
            continue
        kept.append(row)
    found = np.array(kept)
    return found[:, :-1], found[:, -1]
