"""The layout problem over several memory spaces: which buffer goes where, and at which address there.

A fast space has little room, a slow one takes the rest: SRAM and PSRAM of a microcontroller, a device and its host.
A buffer lies in one space for its whole life. What it costs there is its accesses times its bytes times the cost of
the space for each byte, in any unit, as long as it is the same for all spaces and an integer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from neaptide.errors import LayoutProblemError, VerifyError
from neaptide.layout.problem import LIMIT, Buffer, LayoutProblem
from neaptide.layout.result import Layout
from neaptide.layout.validate import check_layout


@dataclass(frozen=True, slots=True)
class MemorySpace:
    """A memory with its own addresses.

    Attributes:
        name: unique in its problem.
        capacity_bytes: of all arenas in it; None for no end.
        cost_per_byte: of one access to one byte.
        alignment: of every offset in it, a power of two.
        max_arena_bytes: no arena in it is larger, so it may need several; None for one arena.
    """

    name: str
    capacity_bytes: int | None = None
    cost_per_byte: int = 0
    alignment: int = 1
    max_arena_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class PooledProblem:
    """Buffers, and the spaces that they may lie in.

    Attributes:
        problem: the buffers; a fixed offset is one in the first arena of the buffer's space.
        accesses: by name of a buffer, how often each of its bytes is read or written; 1 for those not named.
        allowed: by name of a buffer, the names of the spaces that it may lie in; all of them for those not named. One
            name pins it.
        choices: by buffer, the indexes of its spaces, ascending.
        costs: by buffer and space, what it costs there.

    Raises:
        LayoutProblemError: a number or name that cannot be meant, a buffer that fits none of its spaces, or a fixed
            offset without a single space.
    """

    problem: LayoutProblem
    spaces: tuple[MemorySpace, ...]
    accesses: Mapping[str, int] = field(default_factory=dict)
    allowed: Mapping[str, Sequence[str]] = field(default_factory=dict)
    choices: tuple[tuple[int, ...], ...] = field(init=False, repr=False, compare=False)
    costs: tuple[tuple[int, ...], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_spaces(self.spaces)
        buffers = self.problem.buffers
        names = {buffer.name for buffer in buffers}
        for name in (*self.accesses, *self.allowed):
            if name not in names:
                raise LayoutProblemError(f"there is no buffer {name!r}")
        for name, count in self.accesses.items():
            if isinstance(count, bool) or not isinstance(count, int) or count < 0:
                raise LayoutProblemError(f"buffer {name!r} is accessed {count!r} times")
        object.__setattr__(self, "choices", tuple(self._choices(buffer) for buffer in buffers))
        costs = tuple(
            tuple(
                self.accesses.get(buffer.name, 1) * buffer.nbytes * space.cost_per_byte
                for space in self.spaces
            )
            for buffer in buffers
        )
        object.__setattr__(self, "costs", costs)

    def __len__(self) -> int:
        return len(self.problem)

    def part(self, space: int, members: Sequence[int]) -> LayoutProblem:
        """Some of the buffers as a problem of their own, aligned as the space wants it."""
        alignment = self.spaces[space].alignment
        buffers = (self.problem.buffers[index] for index in members)
        name = f"{self.problem.name} in {self.spaces[space].name}"
        return LayoutProblem(tuple(_aligned(buffer, alignment) for buffer in buffers), name)

    def _choices(self, buffer: Buffer) -> tuple[int, ...]:
        by_name = {space.name: index for index, space in enumerate(self.spaces)}
        wanted = self.allowed.get(buffer.name, tuple(by_name))
        for name in wanted:
            if name not in by_name:
                raise LayoutProblemError(
                    f"buffer {buffer.name!r} is allowed in the space {name!r}, which is not there",
                    next_step=f"name some of {', '.join(by_name)}",
                )
        fitting = sorted({by_name[name] for name in wanted if _holds(self.spaces[by_name[name]], buffer)})
        if not fitting:
            raise LayoutProblemError(
                f"buffer {buffer.name!r} fits none of its spaces",
                why=f"it has {buffer.nbytes} bytes; it is allowed in {', '.join(wanted) or 'no space'}",
            )
        if buffer.offset is not None:
            if len(set(wanted)) > 1:
                raise LayoutProblemError(
                    f"buffer {buffer.name!r} is fixed at {buffer.offset}, but may lie in several spaces"
                )
            if buffer.offset % self.spaces[fitting[0]].alignment:
                raise LayoutProblemError(
                    f"buffer {buffer.name!r} is fixed at {buffer.offset}, which breaks the alignment of its space"
                )
        return tuple(fitting)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a buffer lies."""

    space: int
    arena: int
    offset: int


@dataclass(frozen=True, slots=True)
class PooledLayout:
    """A place for each buffer.

    Attributes:
        arena_bytes: by space, the size of each of its arenas.
        cost: of all buffers where they lie.
    """

    places: tuple[Place, ...]
    arena_bytes: tuple[tuple[int, ...], ...]
    cost: int

    def space_bytes(self, space: int) -> int:
        """All arenas of a space together."""
        return sum(self.arena_bytes[space])

    def members(self, space: int) -> tuple[int, ...]:
        """The buffers in a space."""
        return tuple(index for index, place in enumerate(self.places) if place.space == space)


def _aligned(buffer: Buffer, alignment: int) -> Buffer:
    return replace(buffer, alignment=alignment) if alignment > buffer.alignment else buffer


def _holds(space: MemorySpace, buffer: Buffer) -> bool:
    """Whether a space holds a buffer alone."""
    top = buffer.nbytes + (buffer.offset or 0)
    limits = (space.capacity_bytes, space.max_arena_bytes)
    return all(limit is None or top <= limit for limit in limits)


def _check_spaces(spaces: tuple[MemorySpace, ...]) -> None:
    if not spaces:
        raise LayoutProblemError("there is no memory space")
    names = [space.name for space in spaces]
    for space in spaces:
        if names.count(space.name) > 1:
            raise LayoutProblemError(f"two memory spaces have the name {space.name!r}")
        numbers = [space.cost_per_byte, space.alignment]
        numbers += [n for n in (space.capacity_bytes, space.max_arena_bytes) if n is not None]
        if any(isinstance(n, bool) or not isinstance(n, int) or not 0 <= n < LIMIT for n in numbers):
            raise LayoutProblemError(
                f"the memory space {space.name!r} has a number that is no integer from 0 to {LIMIT - 1}"
            )
        if space.alignment == 0 or space.alignment & (space.alignment - 1):
            raise LayoutProblemError(
                f"the memory space {space.name!r} has the alignment {space.alignment}, which is no power of two"
            )


def check_pooled_layout(pooled: PooledProblem, layout: PooledLayout) -> None:
    """Make sure that every buffer lies in an allowed space, clashes with none, and that sizes and cost are as said.

    Raises:
        VerifyError: names what is wrong.
    """
    buffers = pooled.problem.buffers
    if len(layout.places) != len(buffers) or len(layout.arena_bytes) != len(pooled.spaces):
        raise VerifyError("the layout is not one of this problem")
    cost = 0
    arenas: dict[tuple[int, int], list[int]] = {}
    for index, (buffer, place) in enumerate(zip(buffers, layout.places, strict=True)):
        if not 0 <= place.space < len(pooled.spaces):
            raise VerifyError(f"buffer {buffer.name!r} lies in the space {place.space}, which is not there")
        space = pooled.spaces[place.space]
        names = pooled.allowed.get(buffer.name)
        if names is not None and space.name not in names:
            raise VerifyError(f"buffer {buffer.name!r} lies in {space.name!r}, where it is not allowed")
        if buffer.offset is not None and place.arena != 0:
            raise VerifyError(f"the fixed buffer {buffer.name!r} lies in the arena {place.arena}")
        cost += pooled.accesses.get(buffer.name, 1) * buffer.nbytes * space.cost_per_byte
        arenas.setdefault((place.space, place.arena), []).append(index)
    if cost != layout.cost:
        raise VerifyError(f"the layout is said to cost {layout.cost}, it costs {cost}")
    for number, (space, sizes) in enumerate(zip(pooled.spaces, layout.arena_bytes, strict=True)):
        if {arena for at, arena in arenas if at == number} != set(range(len(sizes))):
            raise VerifyError(
                f"the space {space.name!r} has {len(sizes)} arenas, not those that buffers lie in"
            )
        if space.capacity_bytes is not None and sum(sizes) > space.capacity_bytes:
            raise VerifyError(
                f"the arenas in {space.name!r} have {sum(sizes)} bytes, more than {space.capacity_bytes}"
            )
        for arena, size in enumerate(sizes):
            members = arenas[number, arena]
            part = LayoutProblem(
                tuple(
                    replace(buffers[index], alignment=max(buffers[index].alignment, space.alignment))
                    for index in members
                )
            )
            offsets = tuple(layout.places[index].offset for index in members)
            limit = size if space.max_arena_bytes is None else min(size, space.max_arena_bytes)
            check_layout(part, Layout(offsets, size), capacity_bytes=limit)
