"""Memory that was touched before, for calls that are timed: fresh pages take longer than most of what is timed.

The allocator of glibc takes blocks from the end of its heap, and gives that end back to the system when enough of it is
free. Which calls then touch fresh pages follows from everything that the process ever allocated, not from the call. So
touched blocks are freed below one that stays: it keeps the end of the heap where it is, and calls get what is below it.
Blocks of 32 MiB or more are mapped for themselves, and are fresh here as in a program. Other allocators only lose
the time that it takes to touch the blocks.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from time import thread_time
from typing import Final

import torch

from neaptide.cost import host
from neaptide.cost.host import page_faults

_BLOCK_BYTES: Final = 2**25 - 2**17
"""Nearly as large as a block can be that is not mapped for itself (glibc, `DEFAULT_MMAP_THRESHOLD_MAX`)."""
_SMALL_BYTES: Final = 2**20
"""Calls that take no more find used memory anyway."""
_MOST_BYTES: Final = 2**29
_SHARE_OF_FREE_MEMORY: Final = 1 / 8


@contextmanager
def used_memory(nbytes: int) -> Iterator[None]:
    """Within, blocks are of memory that was touched before, as far as so many bytes go.

    Takes up to 2 µs for each page. At most 512 MiB are touched, and at most an eighth of what is free.
    """
    most = min(_MOST_BYTES, int(host.memory_available_bytes() * _SHARE_OF_FREE_MEMORY))
    count = -(-min(nbytes, most) // _BLOCK_BYTES) if nbytes > _SMALL_BYTES else 0
    # What is mapped for itself and then freed teaches the allocator to take blocks of that size from its heap.
    _blocks(count + 1).clear()
    # A hole of the heap may have taken the last one; what lies highest keeps the heap's end.
    blocks = sorted(_blocks(count + 1), key=torch.Tensor.data_ptr)
    kept = blocks.pop()
    for block in blocks:
        block.fill_(0)
        # No name may keep the last block alive.
        del block
    blocks.clear()
    try:
        yield
    finally:
        del kept


def _blocks(count: int) -> list[torch.Tensor]:
    return [torch.empty(_BLOCK_BYTES, dtype=torch.uint8) for _ in range(count)]


_PROBED_BYTES: Final = 32 * 2**20
_PROBES: Final = 5
SMALLEST_FRESH_BYTES: Final = 2**23
"""Blocks below this are taken to be used again."""
_LARGEST_BYTES: Final = 2**26
# The first frees teach some allocators to keep blocks of a size.
_TIMES: Final = 8


def seconds_per_fresh_byte() -> float:
    """Seconds of this thread to touch fresh memory and to give it back, beyond writing it, by byte. Takes 0.1 s."""
    # Other programs can only make it longer.
    return max(0.0, min(_extra_seconds() for _ in range(_PROBES)) / _PROBED_BYTES)


def _extra_seconds() -> float:
    before = thread_time()
    with mmap.mmap(-1, _PROBED_BYTES) as block:
        tensor = torch.frombuffer(block, dtype=torch.uint8)
        tensor.fill_(1)
        filled = thread_time()
        tensor.fill_(2)
        again = thread_time()
        del tensor
    return (thread_time() - again) + (filled - before) - (again - filled)


def smallest_fresh_bytes() -> int:
    """From which size on blocks that are freed go back to the system at once; 0 where none do, or it is not told.

    Sizes that are powers of two are tried, down to the first that is kept. Takes 0.5 s.
    """
    found, nbytes = 0, _LARGEST_BYTES
    while nbytes >= SMALLEST_FRESH_BYTES and _is_fresh_again(nbytes):
        found = nbytes
        nbytes //= 2
    return found


def _is_fresh_again(nbytes: int) -> bool:
    touched = 0
    for _ in range(_TIMES):
        before = page_faults()
        torch.empty(nbytes, dtype=torch.uint8).fill_(1)
        after = page_faults()
        if before is None or after is None:
            return False
        touched = after - before
    return touched * mmap.PAGESIZE >= nbytes // 2
