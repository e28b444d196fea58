"""The block allocator of a CUDA device as PyTorch has it: segments from the device, blocks in them, two pools.

It follows `c10/cuda/CUDACachingAllocator.cpp`, read at pytorch/pytorch commit 001074d2 and at a later one that takes its
options from `AcceleratorAllocatorConfig`, and `c10/core/AllocatorConfig.h` of PyTorch 2.13; what is modelled is the same
in both. One stream, no private pools, no blocks that
wait for events. `garbage_collection_threshold` and `roundup_power2_divisions` are off, as by default. Two things that
the source leaves to the driver are assumed: each new segment lies above all others (ties of the best fit are broken
by address), and a device has room for a segment as long as all of them together fit its capacity.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass
from typing import Final

from neaptide.errors import LayoutProblemError, UsageError

MIB: Final = 1 << 20
MIN_BLOCK_BYTES: Final = 512
"""Every request is rounded up to a multiple of this (`kMinBlockSize`)."""
SMALL_BYTES: Final = MIB
"""Rounded requests up to this come from the small pool (`kSmallSize`)."""
SMALL_SEGMENT_BYTES: Final = 2 * MIB
"""Segments of the small pool (`kSmallBuffer`), and the pages of its expandable one."""
MIN_LARGE_SEGMENT_REQUEST: Final = 10 * MIB
"""Requests from this on have a segment of their own (`kMinLargeAlloc`)."""
ROUND_LARGE_BYTES: Final = 2 * MIB
"""Segments of their own are rounded up to a multiple of this (`kRoundLarge`)."""


@dataclass(frozen=True, slots=True)
class AllocatorSettings:
    """What `PYTORCH_CUDA_ALLOC_CONF` and the device decide.

    Attributes:
        capacity_bytes: what all segments together must not exceed (`set_per_process_memory_fraction`, or the
            device); None for no end.
        max_split_bytes: blocks from this size on are not split, and serve only requests of about their size
            (`max_split_size_mb`); None for no end.
        max_unsplit_rest_bytes: a request that large may leave less than this of its block unused
            (`max_non_split_rounding_mb`).
        large_segment_bytes: segments for requests between 1 and 10 MiB (`large_segment_size_mb`), and the pages of
            the expandable segment of the large pool.
        expandable_segments: one segment for each pool, which grows at its end page by page. What happens to it when
            a device is full is not modelled, so there must be no capacity.

    Raises:
        UsageError: a number that cannot be meant, or expandable segments with a capacity or a limit to splits.
    """

    capacity_bytes: int | None = None
    max_split_bytes: int | None = None
    max_unsplit_rest_bytes: int = 20 * MIB
    large_segment_bytes: int = 20 * MIB
    expandable_segments: bool = False

    def __post_init__(self) -> None:
        if self.capacity_bytes is not None and self.capacity_bytes < 0:
            raise UsageError(f"a device cannot have {self.capacity_bytes} bytes")
        least = self.large_segment_bytes
        if self.max_split_bytes is not None and self.max_split_bytes < least:
            raise UsageError(
                f"blocks of {self.max_split_bytes} bytes must remain splittable",
                why=f"segments of {least} bytes serve smaller requests",
                next_step=f"choose a max_split_bytes of at least {least}",
            )
        if least < MIN_LARGE_SEGMENT_REQUEST or least % ROUND_LARGE_BYTES:
            raise UsageError(
                f"segments for requests of up to 10 MiB cannot have {least} bytes",
                next_step="choose a multiple of 2 MiB of at least 10 MiB",
            )
        if self.expandable_segments and (self.capacity_bytes, self.max_split_bytes) != (None, None):
            raise UsageError("expandable segments are simulated without a capacity or a limit to splits")


@dataclass(frozen=True, slots=True)
class AllocatorBytes:
    """The counters of the allocator at one moment.

    Attributes:
        reserved: of all segments (`reserved_bytes.all`).
        allocated: of blocks in use, with what rounding and unsplit rests add (`allocated_bytes.all`).
        requested: of blocks in use, as asked for (`requested_bytes.all`).
    """

    reserved: int
    allocated: int
    requested: int


class _Block:
    """Bytes of a segment, in use or free; neighbours in its segment are linked."""

    __slots__ = ("address", "is_free", "next", "pool", "prev", "requested", "size")

    def __init__(self, pool: _Pool, address: int, size: int) -> None:
        self.pool = pool
        self.address = address
        self.size = size
        self.requested = 0
        self.is_free = False
        self.prev: _Block | None = None
        self.next: _Block | None = None

    @property
    def is_split(self) -> bool:
        return self.prev is not None or self.next is not None


class _Pool:
    """Free blocks by size, then address.

    Attributes:
        is_small: which of the two it is.
        tail: the highest block of its expandable segment, in use or free.
    """

    def __init__(self, *, is_small: bool) -> None:
        self.is_small = is_small
        self.tail: _Block | None = None
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

    def ascending(self, least: int = 0) -> list[_Block]:
        """Free blocks of at least so many bytes."""
        return [self._blocks[address] for _, address in self._order[bisect_left(self._order, (least, 0)) :]]

    def best_fit(self, size: int) -> _Block | None:
        """The smallest that fits; the end of an expandable segment counts as endless, so it comes last."""
        at = bisect_left(self._order, (size, 0))
        if at == len(self._order):
            return None
        block = self._blocks[self._order[at][1]]
        if block is self.tail and at + 1 < len(self._order):
            block = self._blocks[self._order[at + 1][1]]
        return block


class CachingAllocator:
    """The allocator of one device.

    Attributes:
        bytes: its counters now.
        segments: it holds now.
        segments_made: ever.
        retries: times when all unused segments were given back for want of room.
    """

    def __init__(self, settings: AllocatorSettings) -> None:
        self.settings = settings
        self.bytes = AllocatorBytes(0, 0, 0)
        self.segments = self.segments_made = self.retries = 0
        self._small = _Pool(is_small=True)
        self._large = _Pool(is_small=False)
        self._live: dict[int, _Block] = {}
        self._top = 0  # where the next segment begins

    def allocate(self, block: int, nbytes: int) -> bool:
        """Serve a request; False where the device has no room, even with all unused segments given back.

        Raises:
            LayoutProblemError: the block is in use.
        """
        if block in self._live:
            raise LayoutProblemError(f"block {block} is allocated twice")
        size = _rounded(nbytes, MIN_BLOCK_BYTES)
        pool = self._small if size <= SMALL_BYTES else self._large
        found = self._take_free(pool, size) or self._take_segment(pool, size)
        if found is None:
            return False
        if self._should_split(found, size):
            _split(found, size)
        found.requested = nbytes
        self._live[block] = found
        self._count(allocated=found.size, requested=nbytes)
        return True

    def free(self, block: int) -> None:
        """Put a block back, merged with free neighbours in its segment.

        Raises:
            LayoutProblemError: the block is not in use.
        """
        found = self._live.pop(block, None)
        if found is None:
            raise LayoutProblemError(f"block {block} is freed and not in use")
        self._count(allocated=-found.size, requested=-found.requested)
        for neighbour in (found.prev, found.next):
            if neighbour is not None and neighbour.is_free:
                _absorb(found, neighbour)
        found.pool.add(found)

    def empty_cache(self) -> None:
        """Give every segment without a block in use back to the device; an expandable one stays."""
        for pool in (self._large, self._small):
            for block in pool.ascending():
                if not block.is_split and block is not pool.tail:
                    self._release(block)

    def _take_free(self, pool: _Pool, size: int) -> _Block | None:
        block = pool.best_fit(size)
        if block is None:
            return None
        limit = self.settings.max_split_bytes
        if limit is not None:
            if size < limit <= block.size:
                return None
            if size >= limit and block.size >= size + self.settings.max_unsplit_rest_bytes:
                return None
        pool.remove(block)
        return block

    def _take_segment(self, pool: _Pool, size: int) -> _Block | None:
        if self.settings.expandable_segments:
            return self._expand(pool, size)
        if size <= SMALL_BYTES:
            nbytes = SMALL_SEGMENT_BYTES
        elif size < MIN_LARGE_SEGMENT_REQUEST:
            nbytes = self.settings.large_segment_bytes
        else:
            nbytes = _rounded(size, ROUND_LARGE_BYTES)
        if not self._has_room(nbytes):
            # First only what stands in the way of this request, which takes a limit to splits; then everything.
            if not self._release_oversize(pool, size) or not self._has_room(nbytes):
                self.empty_cache()
                self.retries += 1
            if not self._has_room(nbytes):
                return None
        return self._new_segment(pool, nbytes)

    def _expand(self, pool: _Pool, size: int) -> _Block:
        """Grow the pool's segment by whole pages, until its free end holds the request."""
        page = SMALL_SEGMENT_BYTES if pool.is_small else self.settings.large_segment_bytes
        tail = pool.tail
        if tail is not None and tail.is_free:
            pool.remove(tail)
            more = _rounded(size - tail.size, page)
            tail.size += more
            self._count(reserved=more)
            return tail
        more = _rounded(size, page)
        if tail is None:
            # Pools do not share addresses; how far apart they are changes nothing.
            pool.tail = self._new_segment(pool, more)
            return pool.tail
        block = _Block(pool, tail.address + tail.size, more)
        block.prev, tail.next = tail, block
        pool.tail = block
        self._count(reserved=more)
        return block

    def _new_segment(self, pool: _Pool, nbytes: int) -> _Block:
        block = _Block(pool, self._top, nbytes)
        self._top += nbytes
        self.segments += 1
        self.segments_made += 1
        self._count(reserved=nbytes)
        return block

    def _has_room(self, nbytes: int) -> bool:
        capacity = self.settings.capacity_bytes
        return capacity is None or self.bytes.reserved + nbytes <= capacity

    def _should_split(self, block: _Block, size: int) -> bool:
        rest = block.size - size
        if block.pool.is_small or self.settings.expandable_segments:
            return rest >= MIN_BLOCK_BYTES
        limit = self.settings.max_split_bytes
        return (limit is None or size < limit) and rest > SMALL_BYTES

    def _release_oversize(self, pool: _Pool, size: int) -> bool:
        """Give back one unused block that is large enough, or the largest unsplittable ones until they add up."""
        limit = self.settings.max_split_bytes
        if limit is None:
            return False
        least = max(size, limit)
        enough = pool.ascending(least)
        if enough:
            self._release(enough[0])
            return True
        released = 0
        for block in reversed(pool.ascending(limit)):
            if released >= least:
                break
            released += block.size
            self._release(block)
        return released >= least

    def _release(self, block: _Block) -> None:
        block.pool.remove(block)
        self.segments -= 1
        self._count(reserved=-block.size)

    def _count(self, reserved: int = 0, allocated: int = 0, requested: int = 0) -> None:
        now = self.bytes
        self.bytes = AllocatorBytes(
            now.reserved + reserved, now.allocated + allocated, now.requested + requested
        )


def _split(block: _Block, size: int) -> None:
    """Cut a block down to its first bytes; the rest is free."""
    rest = _Block(block.pool, block.address + size, block.size - size)
    rest.prev, rest.next = block, block.next
    if rest.next is not None:
        rest.next.prev = rest
    block.next = rest
    block.size = size
    if block.pool.tail is block:
        block.pool.tail = rest
    block.pool.add(rest)


def _absorb(block: _Block, free: _Block) -> None:
    """Join a block with a free neighbour."""
    free.pool.remove(free)
    if free is block.prev:
        block.address = free.address
        block.prev = free.prev
        if block.prev is not None:
            block.prev.next = block
    else:
        block.next = free.next
        if block.next is not None:
            block.next.prev = block
    block.size += free.size
    if free.pool.tail is free:
        free.pool.tail = block


def _rounded(nbytes: int, unit: int) -> int:
    return -(-nbytes // unit) * unit
