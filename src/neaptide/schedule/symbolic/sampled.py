"""Peaks of orders at the sample shapes, all shapes at once, for searches that look at many orders."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from neaptide.schedule.symbolic.problem import SymbolicProblem


class SampledPeaks:
    """Sizes of a problem at the sample shapes of its store, as arrays."""

    def __init__(self, problem: SymbolicProblem) -> None:
        structure = problem.structure
        shapes = problem.store.samples()
        count = len(shapes)
        sizes = np.array(
            [[size.evaluate(shape) for shape in shapes] for size in problem.sizes], dtype=np.int64
        ).reshape(-1, count)
        kept = np.array([s.resident or s.output for s in structure.storages], dtype=bool)
        from_start = np.array(structure.from_start, dtype=bool)
        is_used = np.array([bool(accessors) for accessors in structure.accessors], dtype=bool)
        self._rest = sizes[kept & ~is_used].sum(axis=0)
        self._sizes = sizes[is_used]
        self._kept = kept[is_used]
        self._from_start = from_start[is_used]
        used = [accessors for accessors in structure.accessors if accessors]
        self._accessors = np.array([op for accessors in used for op in accessors], dtype=np.int64)
        lengths = np.array([len(accessors) for accessors in used], dtype=np.int64)
        self._begins = np.cumsum(lengths) - lengths
        self._workspace = np.array(
            [[size.evaluate(shape) for shape in shapes] for size in problem.workspace], dtype=np.int64
        ).reshape(-1, count)

    def peaks(self, order: Sequence[int]) -> tuple[int, ...]:
        """The peak of a legal order at each sample shape. O((operations + storages) x shapes + accesses)."""
        count = len(order)
        if not count:
            return tuple(self._rest.tolist())
        taken = np.array(order, dtype=np.int64)
        position_of = np.empty(count, dtype=np.int64)
        position_of[taken] = np.arange(count)
        change = np.zeros((count + 1, len(self._rest)), dtype=np.int64)
        if len(self._accessors):
            positions = position_of[self._accessors]
            begin = np.where(self._from_start, 0, positions[self._begins])
            end = np.where(self._kept, count, np.maximum.reduceat(positions, self._begins) + 1)
            np.add.at(change, begin, self._sizes)
            np.subtract.at(change, end, self._sizes)
        live = np.cumsum(change[:-1], axis=0) + self._workspace[taken] + self._rest
        return tuple(live.max(axis=0).tolist())
