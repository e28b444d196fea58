"""Fresh memory: the system hands out zeroed pages on first touch, which takes many times as long as writing them again.

What an operation allocates is fresh each time when the allocator gives blocks of that size back to the system as soon as
they are freed; smaller ones are mostly used again.
"""

from __future__ import annotations

import mmap
from time import thread_time
from typing import Final

import torch

from neaptide.cost.host import page_faults

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
    """Whether a block of a size, freed a few times before, is of fresh pages again."""
    touched = 0
    for _ in range(_TIMES):
        before = page_faults()
        torch.empty(nbytes, dtype=torch.uint8).fill_(1)
        after = page_faults()
        if before is None or after is None:
            return False
        touched = after - before
    return touched * mmap.PAGESIZE >= nbytes // 2
