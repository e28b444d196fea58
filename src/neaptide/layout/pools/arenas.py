"""Buffers in one memory space of a given capacity, in one arena or in several of a given size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from neaptide.errors import LayoutProblemError
from neaptide.layout.bounds import live_bytes
from neaptide.layout.heuristics.placement import Fit, Shelf, fixed_shelf, place_below
from neaptide.layout.heuristics.rules import by_life, by_size, program_order
from neaptide.layout.problem import ANYWHERE, LIMIT, LayoutProblem
from neaptide.layout.result import Layout


@dataclass(frozen=True, slots=True)
class Packing:
    """Buffers of a problem in the arenas of one space.

    Attributes:
        arenas: by buffer, the number of its arena.
        offsets: by buffer, from the base of its arena.
        arena_bytes: by arena.
    """

    arenas: tuple[int, ...]
    offsets: tuple[int, ...]
    arena_bytes: tuple[int, ...]

    @staticmethod
    def of(layout: Layout) -> Packing:
        """One arena, or none for no buffer."""
        count = len(layout.offsets)
        return Packing((0,) * count, layout.offsets, (layout.arena_bytes,) if count else ())

    @property
    def nbytes(self) -> int:
        """All arenas together."""
        return sum(self.arena_bytes)


def pack_quickly(
    problem: LayoutProblem, capacity_bytes: int | None = None, max_arena_bytes: int | None = None
) -> Packing | None:
    """The first packing that the best placement rules find; None proves nothing. O(n^2), vectorised.

    Args:
        problem: what is to be placed.
        capacity_bytes: of all arenas together; without it the first rule has the answer.
        max_arena_bytes: of each arena; where one arena is not enough, buffers go to the first that has room.
    """
    limits = [limit for limit in (capacity_bytes, max_arena_bytes) if limit is not None]
    limit = min(limits, default=LIMIT)
    if live_bytes(problem) <= limit:
        for order, fit in _quick_orders(problem):
            layout = place_below(problem, order, fit, limit + 1)
            if layout is not None:
                return Packing.of(layout)
    if max_arena_bytes is None:
        return None
    return split_into_arenas(problem, max_arena_bytes, capacity_bytes)


def split_into_arenas(
    problem: LayoutProblem, max_arena_bytes: int, capacity_bytes: int | None = None
) -> Packing | None:
    """Several arenas, none above a size, together as small as the best placement rules make them. O(n^2) each.

    Buffers go to the first arena with room for them, as in bin packing; fixed ones to the first of all.

    Returns:
        None where no rule stays within the capacity; that proves nothing.

    Raises:
        LayoutProblemError: a buffer is larger than an arena.
    """
    for buffer in problem.buffers:
        if (buffer.offset or 0) + buffer.nbytes > max_arena_bytes:
            raise LayoutProblemError(
                f"buffer {buffer.name!r} does not fit an arena of {max_arena_bytes} bytes"
            )
    best: Packing | None = None
    for order, fit in _quick_orders(problem):
        packing = _fill_arenas(problem, order, fit, max_arena_bytes)
        if best is None or packing.nbytes < best.nbytes:
            best = packing
    if best is None or (capacity_bytes is not None and best.nbytes > capacity_bytes):
        return None
    return best


def _fill_arenas(problem: LayoutProblem, order: Sequence[int], fit: Fit, limit: int) -> Packing:
    shelves = [fixed_shelf(problem)] if len(problem) else []
    tops = [max((b.offset + b.nbytes for b in problem.buffers if b.offset is not None), default=0)]
    arenas = [0] * len(problem)
    offsets = [0 if offset == ANYWHERE else offset for offset in problem.fixed.tolist()]
    for index in order:
        if problem.fixed[index] != ANYWHERE:
            continue
        size = problem.buffers[index].nbytes
        found = [shelf.find(index, fit) for shelf in shelves]
        number = next((at for at, offset in enumerate(found) if offset + size <= limit), len(shelves))
        if number == len(shelves):
            shelves.append(Shelf(problem))
            tops.append(0)
            found.append(0)
        shelves[number].put(index, found[number])
        arenas[index], offsets[index] = number, found[number]
        tops[number] = max(tops[number], found[number] + size)
    return Packing(tuple(arenas), tuple(offsets), tuple(tops[: len(shelves)]))


def _quick_orders(problem: LayoutProblem) -> list[tuple[list[int], Fit]]:
    """Rules that meet the bound on most training graphs, the best first."""
    size, life, program = by_size(problem), by_life(problem), program_order(problem)
    return [
        (size, Fit.FIRST),
        (size, Fit.BEST),
        (life, Fit.BEST),
        (program, Fit.FIRST),
        (program, Fit.BEST),
        (life, Fit.FIRST),
    ]
