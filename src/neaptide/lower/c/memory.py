"""The arena: a place for every storage with bytes of its own, in one memory or in several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from neaptide.errors import InfeasibleBudget
from neaptide.ir.values import DTYPE_BYTES
from neaptide.layout.best_layout import best_layout
from neaptide.layout.bounds import live_bytes
from neaptide.layout.pools.placing import place_in_spaces
from neaptide.layout.pools.spaces import MemorySpace, PooledProblem
from neaptide.layout.problem import Buffer, LayoutProblem
from neaptide.lower.c.program import Program
from neaptide.lower.c.sharing import Sharing
from neaptide.lower.c.views import Place, product
from neaptide.outcome import Limits
from neaptide.units import format_bytes

_MOST_JOINS: Final = 64
"""Joined results that are tried one by one; all of them or none where there are more."""
_WORK: Final = 200_000
"""Nodes of the search for a layout: seconds."""


@dataclass(frozen=True, slots=True)
class Memory:
    """A memory of the device; `name` is part of the names of its array and its section."""

    name: str
    capacity_bytes: int | None = None


ONE_MEMORY: Final = (Memory(""),)


@dataclass(frozen=True, slots=True)
class Arena:
    """Places of the storages that have bytes of their own.

    Attributes:
        places: by storage, in the array of its memory; `nbytes` are its bytes.
        sizes: bytes of each memory that are used.
        live_bytes: most bytes live at one step.
    """

    places: Mapping[int, Place]
    nbytes: Mapping[int, int]
    sizes: tuple[int, ...]
    live_bytes: int


def place(
    program: Program,
    arrays: Mapping[str, Memory],
    limits: Limits | None = None,
    *,
    red_zone_bytes: int = 0,
) -> tuple[Sharing, Arena]:
    """Choose what shares bytes and lay it out. Operands of joined results are made in place where that lowers the peak.

    Args:
        arrays: by name of an array in C, its memory.

    Raises:
        InfeasibleBudget: the memories are too small.
    """
    sharing = _best_sharing(program)
    problem, nbytes = _layout_problem(program, sharing, red_zone_bytes)
    spots, sizes = _solve(problem, tuple(arrays.values()), limits or Limits(work=_WORK))
    names, rest = tuple(arrays), iter(spots)
    places = {root: Place(names[0]) for root in nbytes}
    for root in (root for root in nbytes if nbytes[root]):
        memory, offset = next(rest)
        places[root] = Place(names[memory], offset)
    return sharing, Arena(places, nbytes, sizes, live_bytes(problem) if len(problem) else 0)


def _best_sharing(program: Program) -> Sharing:
    """The choice of windows and parts with the fewest bytes live at once: all, none, then one join less at a time."""

    def cost(sharing: Sharing) -> int:
        problem, _ = _layout_problem(program, sharing, 0)
        return live_bytes(problem) if len(problem) else 0

    joins = [n for n in program.order if program.graph.nodes[n].op.split(".")[1:2] == ["Concat"]]
    tried = [
        (cost(found), windows, kept, found)
        for windows in (True, False)
        for kept in (joins, [])
        for found in [Sharing(program, windows=windows, joins=kept)]
    ]
    least, windows, kept, best = min(tried, key=lambda row: row[0])
    for join in joins if len(joins) <= _MOST_JOINS else ():
        others = [other for other in joins if (other in kept) != (other == join)]
        found = Sharing(program, windows=windows, joins=others)
        if (now := cost(found)) < least:
            least, best, kept = now, found, others
    return best


def _layout_problem(
    program: Program, sharing: Sharing, red_zone_bytes: int
) -> tuple[LayoutProblem, dict[int, int]]:
    """Buffers of all storages with bytes of their own, and these bytes by storage, in the same order."""
    graph, buffers, nbytes = program.graph, [], {}
    for root in sharing.roots():
        value = graph.values[sharing.values[root][0]]
        item = DTYPE_BYTES[value.dtype]
        nbytes[root] = product(program.dims(value)) * item
        if nbytes[root]:
            storage = graph.storages[root]
            buffers.append(
                Buffer(
                    f"{storage.name}#{root}",
                    sharing.start[root],
                    sharing.end[root],
                    nbytes[root] + red_zone_bytes,
                    max(item, 8 if red_zone_bytes else 1),  # AddressSanitizer sees runs of 8 bytes
                    kind=str(storage.kind),
                )
            )
    return LayoutProblem(tuple(buffers), graph.name), nbytes


def _solve(
    problem: LayoutProblem, memories: Sequence[Memory], limits: Limits
) -> tuple[list[tuple[int, int]], tuple[int, ...]]:
    """Memory and offset of each buffer, and the bytes used of each memory."""
    if not len(problem):
        return [], (0,) * len(memories)
    if len(memories) == 1:
        result = best_layout(problem, limits).require()
        capacity = memories[0].capacity_bytes
        layout = result.layout
        assert layout is not None
        if capacity is not None and layout.arena_bytes > capacity:
            raise _too_small(problem, memories, layout.arena_bytes - capacity, result.lower_bound_bytes)
        return [(0, offset) for offset in layout.offsets], (layout.arena_bytes,)
    spaces = tuple(
        MemorySpace(memory.name, memory.capacity_bytes, cost, 8)
        for cost, memory in enumerate(memories, start=1)
    )
    largest = max((memory.capacity_bytes or 0 for memory in memories), default=0)
    too_large = any(buffer.nbytes > largest for buffer in problem.buffers)
    has_end = all(memory.capacity_bytes is not None for memory in memories)
    found = None if has_end and too_large else place_in_spaces(PooledProblem(problem, spaces), limits).value
    if found is None:
        larger = (*memories[:-1], replace(memories[-1], capacity_bytes=None))
        _, sizes = _solve(problem, larger, limits)
        lacks = sizes[-1] - (memories[-1].capacity_bytes or 0)
        raise _too_small(problem, memories, max(lacks, 1), live_bytes(problem))
    used = [0] * len(memories)
    for spot, buffer in zip(found.places, problem.buffers, strict=True):
        used[spot.space] = max(used[spot.space], spot.offset + buffer.nbytes)
    return [(spot.space, spot.offset) for spot in found.places], tuple(used)


def _too_small(
    problem: LayoutProblem, memories: Sequence[Memory], missing: int, bound: int
) -> InfeasibleBudget:
    """The refusal of memories of which the last one lacks some bytes."""
    there = sum(memory.capacity_bytes or 0 for memory in memories)
    names = ", ".join(
        f"{memory.name or 'the memory'} has {memory.capacity_bytes} bytes" for memory in memories
    )
    where = f" in {memories[-1].name}" if len(memories) > 1 else ""
    return InfeasibleBudget(
        f"the arena does not fit: {format_bytes(missing)} ({missing} bytes) are missing{where}",
        smallest_peak_bytes=there + missing,
        lower_bound_bytes=bound,
        live=tuple(buffer.name for buffer in sorted(problem.buffers, key=lambda b: -b.nbytes)[:5]),
        why=f"{names}; no layout of this order was found that takes less",
        next_step="give more memory, or plan with passes that lower the peak",
    )
