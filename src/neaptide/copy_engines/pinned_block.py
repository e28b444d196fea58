"""Pinned memory of the host of exactly so many bytes.

`pin_memory=True` takes its blocks from a cache that rounds them up to a power of two: 9 GiB take 16. So memory of the system is
pinned where it lies.
"""

from __future__ import annotations

import contextlib
import mmap
import weakref
from typing import Any

import torch

from neaptide.errors import TransferError
from neaptide.units import format_bytes

_DONE = 0


def pinned_block(nbytes: int, runtime: Any = None) -> torch.Tensor:
    """A block of pinned memory, rounded up to a page; it is given back with the last tensor of it.

    Args:
        runtime: what pins memory, as `torch.cuda.cudart()`, which it is by default.

    Raises:
        TransferError: the system has not so much, or does not let it be pinned.
    """
    try:
        pages = mmap.mmap(-1, max(nbytes, 1))
    except (OSError, OverflowError, ValueError) as error:
        raise _no_room(nbytes, str(error)) from error
    block = torch.frombuffer(pages, dtype=torch.uint8)
    using = torch.cuda.cudart() if runtime is None else runtime  # type: ignore[no-untyped-call]
    address = block.data_ptr()
    failed = int(using.cudaHostRegister(address, len(pages), 0))
    if failed != _DONE:
        # The runtime keeps the error for whatever asks next, which would raise it as its own.
        if runtime is None:
            with contextlib.suppress(RuntimeError):
                torch.zeros(1, device="cuda")
        raise _no_room(nbytes, f"the CUDA runtime says error {failed}")
    # The pages must be there until they are no longer pinned: the finalizer keeps them.
    weakref.finalize(block.untyped_storage(), _give_back, using, address, pages).atexit = False
    return block[:nbytes]


def _give_back(using: Any, address: int, _pages: mmap.mmap) -> None:
    using.cudaHostUnregister(address)


def _no_room(nbytes: int, why: str) -> TransferError:
    return TransferError(
        f"no {format_bytes(nbytes)} of pinned memory can be set aside",
        why=why,
        next_step="allow fewer bytes on the host, or raise the limit of locked memory (ulimit -l)",
    )
