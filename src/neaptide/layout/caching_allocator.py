"""How many bytes PyTorch's CUDA caching allocator reserves for a program, not only allocates: a simulation.

It follows `c10/cuda/CUDACachingAllocator.cpp` (pytorch/pytorch 001074d2) and `c10/core/AllocatorConfig.h` of PyTorch 2.13 with
the default options, on a device with room for everything: one stream, no private pools, no blocks that wait for events. One
thing that the source leaves to the driver is assumed: each new segment lies above all others (ties of the best fit are broken
by address).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from neaptide.errors import LayoutProblemError
from neaptide.layout.problem import LayoutProblem

MIB: Final = 1 << 20
_MIN_BLOCK: Final = 512  # every request is rounded up to a multiple of this (`kMinBlockSize`)
_SMALL: Final = MIB  # rounded requests up to this come from the small pool (`kSmallSize`)
_SMALL_SEGMENT: Final = 2 * MIB  # segments of the small pool (`kSmallBuffer`)
_LARGE_SEGMENT: Final = 20 * MIB  # segments for requests between 1 and 10 MiB (`kLargeBuffer`)
_OWN_SEGMENT: Final = 10 * MIB  # requests from this on have a segment of their own (`kMinLargeAlloc`),
_ROUND_OWN: Final = 2 * MIB  # which is rounded up to a multiple of this (`kRoundLarge`)


class BlockEvent(NamedTuple):
    """A block, by a number that is free again after its end, is allocated, or freed where `nbytes` is 0."""

    block: int
    nbytes: int


class AllocatorBytes(NamedTuple):
    """The counters of the allocator, as in `torch.cuda.memory_stats`: `reserved_bytes.all` and so on."""

    reserved: int = 0
    allocated: int = 0
    requested: int = 0


def caching_allocator_reserved(problem: LayoutProblem) -> int:
    """Most bytes that PyTorch's caching allocator reserves for the buffers of a problem: the row beside an arena."""
    return max((now.reserved for now in simulate_caching_allocator(problem_events(problem))), default=0)


def problem_events(problem: LayoutProblem) -> Iterator[BlockEvent]:
    """What a program with these lifetimes asks of an allocator. O(n log n).

    At every step what ends there is freed first, then what starts there is allocated, as listed: inputs and outputs
    of an operation are live together since an input ends one step later. Offsets, alignments and gaps play no part.
    """
    changes = [(buffer.end, False, index) for index, buffer in enumerate(problem.buffers)]
    changes += [(buffer.start, True, index) for index, buffer in enumerate(problem.buffers)]
    for _, begins, index in sorted(changes):
        yield BlockEvent(index, problem.buffers[index].nbytes if begins else 0)


def simulate_caching_allocator(events: Iterable[BlockEvent]) -> Iterator[AllocatorBytes]:
    """The counters after each event, from an empty allocator on. A bisection of the free blocks for each event.

    Raises:
        LayoutProblemError: a block is freed that is not there, or allocated twice.
    """
    allocator = _Allocator()
    for event in events:
        (allocator.allocate if event.nbytes else allocator.free)(*event)
        yield allocator.bytes


@dataclass(slots=True, eq=False)
class _Block:
    """Bytes of a segment, in use or free; neighbours in its segment are linked."""

    pool: _Pool
    address: int
    size: int
    requested: int = 0
    is_free: bool = False
    before: _Block | None = None
    after: _Block | None = None


class _Pool:
    """Free blocks by size, then address."""

    def __init__(self) -> None:
        self._order: list[tuple[int, int]] = []
        self._blocks: dict[int, _Block] = {}

    def add(self, block: _Block) -> None:
        block.is_free = True
        insort(self._order, (block.size, block.address))
        self._blocks[block.address] = block

    def remove(self, block: _Block) -> None:
        block.is_free = False
        del self._order[bisect_left(self._order, (block.size, block.address))]
        del self._blocks[block.address]

    def take(self, size: int) -> _Block | None:
        """The smallest free block that fits."""
        at = bisect_left(self._order, (size, 0))
        if at == len(self._order):
            return None
        block = self._blocks[self._order[at][1]]
        self.remove(block)
        return block


class _Allocator:
    def __init__(self) -> None:
        self.bytes = AllocatorBytes()
        self._small, self._large = _Pool(), _Pool()
        self._live: dict[int, _Block] = {}
        self._top = 0  # where the next segment begins

    def allocate(self, number: int, nbytes: int) -> None:
        if number in self._live:
            raise LayoutProblemError(f"block {number} is allocated twice")
        size = _rounded(nbytes, _MIN_BLOCK)
        pool = self._small if size <= _SMALL else self._large
        block = pool.take(size) or self._new_segment(pool, size)
        rest = block.size - size
        if rest >= _MIN_BLOCK if pool is self._small else rest > _SMALL:
            _split(block, size)
        block.requested = nbytes
        self._live[number] = block
        self._count(0, block.size, nbytes)

    def free(self, number: int, _nbytes: int = 0) -> None:
        """Put a block back, merged with free neighbours in its segment."""
        block = self._live.pop(number, None)
        if block is None:
            raise LayoutProblemError(f"block {number} is freed and not in use")
        self._count(0, -block.size, -block.requested)
        for neighbour in (block.before, block.after):
            if neighbour is not None and neighbour.is_free:
                _absorb(block, neighbour)
        block.pool.add(block)

    def _new_segment(self, pool: _Pool, size: int) -> _Block:
        if pool is self._small:
            nbytes = _SMALL_SEGMENT
        else:
            nbytes = _LARGE_SEGMENT if size < _OWN_SEGMENT else _rounded(size, _ROUND_OWN)
        block = _Block(pool, self._top, nbytes)
        self._top += nbytes
        self._count(nbytes, 0, 0)
        return block

    def _count(self, reserved: int, allocated: int, requested: int) -> None:
        now = self.bytes
        self.bytes = AllocatorBytes(
            now.reserved + reserved, now.allocated + allocated, now.requested + requested
        )


def _split(block: _Block, size: int) -> None:
    """Cut a block down to its first bytes; the rest is free."""
    rest = _Block(block.pool, block.address + size, block.size - size, before=block, after=block.after)
    if rest.after is not None:
        rest.after.before = rest
    block.after, block.size = rest, size
    block.pool.add(rest)


def _absorb(block: _Block, free: _Block) -> None:
    """Join a block with a free neighbour."""
    free.pool.remove(free)
    if free is block.before:
        block.address, block.before = free.address, free.before
        if block.before is not None:
            block.before.after = block
    else:
        block.after = free.after
        if block.after is not None:
            block.after.before = block
    block.size += free.size


def _rounded(nbytes: int, unit: int) -> int:
    return -(-nbytes // unit) * unit
