"""A lower bound on the cost of a layout over several memory spaces."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from neaptide.layout.pools.spaces import PooledProblem
from neaptide.layout.problem import Ints, LayoutProblem
from neaptide.linear.sparse_program import SparseProgram

_PRICE_SHIFT: Final = 20  # prices of a byte are multiples of 2**-20
_MOST_ENTRIES: Final = (
    2_000_000  # of the linear program; beyond it every buffer counts with its cheapest space
)


class SectionLoads:
    """Time cut into sections in which no buffer begins or ends, and the bytes of each buffer in them.

    Attributes:
        spans: by buffer, (first section, one past the last, bytes), one for each of its parts.
    """

    def __init__(self, problem: LayoutProblem) -> None:
        parts = [buffer.parts() for buffer in problem.buffers]
        points = sorted({time for pieces in parts for part in pieces for time in (part.start, part.end)})
        rank = {time: at for at, time in enumerate(points)}
        self.count = max(0, len(points) - 1)
        self.spans = [
            [(rank[part.start], rank[part.end], part.high - part.low) for part in pieces] for pieces in parts
        ]

    def of(self, members: Iterable[int]) -> Ints:
        """Bytes of some buffers by section. O(sum of their sections)."""
        loads = np.zeros(self.count, dtype=np.int64)
        for index in members:
            self.change(loads, index, 1)
        return loads

    def change(self, loads: Ints, index: int, sign: int) -> None:
        """Add a buffer to loads, or take it out."""
        for first, last, nbytes in self.spans[index]:
            loads[first:last] += sign * nbytes

    def has_room(self, loads: Ints, index: int, capacity: int) -> bool:
        """Whether a buffer can be added to loads without exceeding a capacity."""
        return all(int(loads[a:b].max()) + nbytes <= capacity for a, b, nbytes in self.spans[index])

    def covers(self, index: int, section: int) -> bool:
        """Whether a buffer uses bytes in a section."""
        return any(first <= section < last for first, last, _ in self.spans[index])


def excluded_space(pooled: PooledProblem, sections: SectionLoads) -> str | None:
    """Why there is no layout at all, where bytes alone prove it; None where they do not. O(n x sections)."""
    for number, space in enumerate(pooled.spaces):
        pinned = [index for index, choices in enumerate(pooled.choices) if choices == (number,)]
        needed = int(sections.of(pinned).max(initial=0))
        if space.capacity_bytes is not None and needed > space.capacity_bytes:
            return f"the buffers that must lie in {space.name!r} have {needed} bytes at one step"
    capacities = [space.capacity_bytes for space in pooled.spaces]
    known = [capacity for capacity in capacities if capacity is not None]
    needed = int(sections.of(list(range(len(pooled)))).max(initial=0))
    if len(known) == len(capacities) and needed > sum(known):
        return f"{needed} bytes are in use at one step, all spaces together have {sum(known)}"
    return None


@dataclass(frozen=True, slots=True)
class CostBound:
    """What every layout costs at least, and why."""

    cost: int
    # By space with a capacity, what a byte of it is worth in each section, times `2**20`; without any where
    # the cheapest spaces decide, or the linear program is too large.
    prices: dict[int, list[int]]

    def price(self, sections: SectionLoads, index: int, space: int) -> int:
        """Of all bytes of a buffer in a space, over all sections, times `2**20`."""
        row = self.prices.get(space)
        if row is None:
            return 0
        return sum(nbytes * sum(row[first:last]) for first, last, nbytes in sections.spans[index])


def cost_bound(pooled: PooledProblem, sections: SectionLoads | None = None) -> CostBound:
    """No layout costs less: the linear program over bytes in use by section and space, with exact arithmetic.

    Buffers may lie in several spaces by fractions, and addresses do not exist. Whatever prices the solver names for
    a byte of a space in a section, Lagrange's bound holds for them, and that is evaluated in integers.
    """
    pairs = zip(pooled.costs, pooled.choices, strict=True)
    cheapest = sum(min(costs[space] for space in choices) for costs, choices in pairs)
    sections = sections or SectionLoads(pooled.problem)
    limited = [number for number, space in enumerate(pooled.spaces) if space.capacity_bytes is not None]
    has_costs = any(space.cost_per_byte for space in pooled.spaces)
    entries = len(limited) * sum(last - first for spans in sections.spans for first, last, _ in spans)
    if not limited or not has_costs or not len(pooled) or entries > _MOST_ENTRIES:
        return CostBound(cheapest, {})
    bound = CostBound(0, _prices(pooled, sections, limited))
    return CostBound(max(cheapest, _lagrange(pooled, sections, bound)), bound.prices)


def _prices(pooled: PooledProblem, sections: SectionLoads, limited: list[int]) -> dict[int, list[int]]:
    """By space, the price of a byte in each section, times 2**20; empty where the solver has none."""
    pairs = [(index, space) for index, choices in enumerate(pooled.choices) for space in choices]
    largest = max(1, *(b.nbytes for b in pooled.problem.buffers))
    dearest = max(1, *(max(costs) for costs in pooled.costs))
    row_of = {space: number * sections.count for number, space in enumerate(limited)}
    rows: list[int] = []
    columns: list[int] = []
    values: list[float] = []
    for column, (index, space) in enumerate(pairs):
        for first, last, nbytes in sections.spans[index] if space in row_of else ():
            rows += range(row_of[space] + first, row_of[space] + last)
            columns += [column] * (last - first)
            values += [nbytes / largest] * (last - first)
    capacities = [
        pooled.spaces[space].capacity_bytes or 0 for space in limited for _ in range(sections.count)
    ]
    program = SparseProgram()
    program.variables(np.ones(len(pairs), dtype=bool))
    program.add_entries(
        np.array(rows, dtype=np.int64),
        np.array(columns, dtype=np.int64),
        np.array(values, dtype=np.float64),
        np.array(capacities) / largest,
    )
    # Every buffer lies somewhere.
    buffers = np.array([index for index, _ in pairs], dtype=np.int64)
    program.add_entries(buffers, np.arange(len(pairs)), -np.ones(len(pairs)), -np.ones(len(pooled)))
    cost = np.array([pooled.costs[index][space] / dearest for index, space in pairs])
    program.close(cost, np.zeros(len(pairs)), np.ones(len(pairs)))
    program.relax()
    if program.multipliers is None:
        return {}
    unit = dearest / largest * (1 << _PRICE_SHIFT)
    prices = [int(multiplier * unit) for multiplier in program.multipliers]
    return {space: prices[row : row + sections.count] for space, row in row_of.items()}


def _lagrange(pooled: PooledProblem, sections: SectionLoads, bound: CostBound) -> int:
    """The bound of some prices: every buffer where it is cheapest with them, less the price of all room."""
    total = 0
    for space, row in bound.prices.items():
        total -= (pooled.spaces[space].capacity_bytes or 0) * sum(row)
    for index, choices in enumerate(pooled.choices):
        total += min(
            (pooled.costs[index][space] << _PRICE_SHIFT) + bound.price(sections, index, space)
            for space in choices
        )
    return -(-total >> _PRICE_SHIFT)
