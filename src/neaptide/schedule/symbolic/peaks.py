"""Bytes at every operation of an order, at sample shapes and as expressions, and the few that may be its peak."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from neaptide.schedule.order.evaluate import check_order
from neaptide.schedule.symbolic.problem import SymbolicProblem
from neaptide.symbolic.relations import KnownSize, SizeRelations
from neaptide.symbolic.size_expr import SizeExpr

_Ints: TypeAlias = NDArray[np.int64]
_Rows: TypeAlias = tuple[_Ints, _Ints]
"""A row of numbers for each storage, and for the workspace of each operation."""


@dataclass(frozen=True, slots=True)
class SymbolicPeak:
    """The peak of an order: at every shape the largest of a few expressions.

    Attributes:
        known: the expressions in the form of the store; none is proved to be at most another at every shape.
    """

    known: tuple[KnownSize, ...]
    store: SizeRelations

    @property
    def sizes(self) -> tuple[SizeExpr, ...]:
        """The expressions, over dims of the graph."""
        return tuple(map(self.store.expression, self.known))

    def evaluate(self, binding: Mapping[str, int]) -> int:
        """The peak in bytes at a shape."""
        full = self.store.binding(binding)
        return max(size.evaluate(full) for size in self.sizes)

    @property
    def samples(self) -> tuple[int, ...]:
        """The peak in bytes at the sample shapes of the store."""
        return tuple(map(max, zip(*(known.samples for known in self.known), strict=True)))


class OrderPeaks:
    """Bytes along orders of one problem: what is there does not depend on the shape, so they are sums of rows."""

    def __init__(self, problem: SymbolicProblem) -> None:
        self.problem = problem
        structure = problem.structure
        known = [problem.store.known(size) for size in (*problem.sizes, *problem.workspace)]
        width = 1 + max((number for size in known for number in size.coefficients), default=0)
        coefficients = np.zeros((len(known), width), dtype=np.int64)
        for row, size in zip(coefficients, known, strict=True):
            row[list(size.coefficients)] = list(size.coefficients.values())
        samples = np.array([size.samples for size in known], dtype=np.int64).reshape(len(known), -1)
        count = len(problem.sizes)
        self._coefficients: _Rows = coefficients[:count], coefficients[count:]
        self._samples: _Rows = samples[:count], samples[count:]
        self._kept = np.array([s.resident or s.output for s in structure.storages], dtype=bool)
        self._from_start = np.array(structure.from_start, dtype=bool)
        lengths = np.array([len(accessors) for accessors in structure.accessors], dtype=np.int64)
        self._is_used = lengths > 0
        self._accessors = np.array([op for ops in structure.accessors for op in ops], dtype=np.int64)
        self._begins = (np.cumsum(lengths) - lengths)[self._is_used]

    def total_samples(self) -> tuple[int, ...]:
        """Bytes of all storages together at the sample shapes."""
        return tuple(self._samples[0].sum(axis=0).tolist())

    def sampled(self, order: Sequence[int]) -> tuple[int, ...]:
        """The peak of a legal order at each sample shape. O((operations + storages) x shapes + accesses)."""
        return tuple(self._along(order, self._samples).max(axis=0).tolist())

    def live(self, order: Sequence[int]) -> tuple[KnownSize, ...]:
        """Bytes while each operation of a legal order runs, residents and workspace included; at rest without any."""
        return self._sizes(self._along(order, self._coefficients))

    def peak(self, order: Sequence[int]) -> SymbolicPeak:
        """The peak of an order. O(accesses x monomials + distinct sizes x expressions that are left)."""
        check_order(self.problem.structure, order)
        distinct = np.unique(self._along(order, self._coefficients), axis=0)
        return SymbolicPeak(largest(self.problem.store, self._sizes(distinct)), self.problem.store)

    def _sizes(self, rows: _Ints) -> tuple[KnownSize, ...]:
        return tuple(
            self.problem.store.of_coefficients({n: c for n, c in enumerate(row) if c})
            for row in rows.tolist()
        )

    def _along(self, order: Sequence[int], rows: _Rows) -> _Ints:
        """By position the sum of the rows of what is there. Without operations, one row of what is there at rest."""
        of_storages, of_workspace = rows
        rest: _Ints = of_storages[self._kept & ~self._is_used].sum(axis=0, keepdims=True)
        if not len(order):
            return rest
        taken = np.array(order, dtype=np.int64)
        position_of = np.empty_like(taken)
        position_of[taken] = np.arange(len(taken))
        change = np.zeros((len(taken) + 1, of_storages.shape[1]), dtype=np.int64)
        if len(self._accessors):
            used = self._is_used
            positions = position_of[self._accessors]
            begin = np.where(self._from_start[used], 0, positions[self._begins])
            last = np.maximum.reduceat(positions, self._begins)
            np.add.at(change, begin, of_storages[used])
            np.subtract.at(change, np.where(self._kept[used], len(taken), last + 1), of_storages[used])
        found: _Ints = np.cumsum(change[:-1], axis=0) + of_workspace[taken] + rest
        return found


def largest(store: SizeRelations, sizes: Iterable[KnownSize]) -> tuple[KnownSize, ...]:
    """Sizes of which one is the largest at every shape: without those that are proved to be at most another."""
    kept: list[KnownSize] = []
    for size in sorted(dict.fromkeys(sizes), key=lambda size: size.samples, reverse=True):
        if not is_covered(store, size, kept):
            kept = [other for other in kept if store.compare_known(other, size) not in {"<", "<="}]
            kept.append(size)
    return tuple(kept)


def is_covered(store: SizeRelations, size: KnownSize, others: Iterable[KnownSize]) -> bool:
    """Whether a size is proved to be at most one of some others at every shape."""
    return any(store.compare_known(size, other) in {"<", "<=", "=="} for other in others)


def is_never_higher(peak: SymbolicPeak, other: SymbolicPeak) -> bool:
    """Whether a peak is proved to be at most another one at every shape."""
    return all(is_covered(peak.store, size, other.known) for size in peak.known)
