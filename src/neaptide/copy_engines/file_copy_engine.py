"""Copies between the memory of the CPU and a file, throttled: the slow memory of a machine without an accelerator.

The file has no name, so that it is gone with the process however that ends. It is written and read by calls of the
system, not through a mapping: where the disk is full or the file has been cut, a call gives an error, and a mapping kills
the process.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
import time
import weakref
from collections.abc import Callable
from typing import Final, TypeAlias

import torch

from neaptide.copy_engines.copy_engine import Extent, SlowMemory
from neaptide.copy_engines.copy_thread import CopyJob, CopyThread, Pieces
from neaptide.errors import TransferError
from neaptide.units import format_bytes

_PIECE_BYTES: Final = 1 << 20
"""A copy that is given up ends after its piece: within 5 ms at 200 MB/s."""
_CUT: Final = "the file ends before the bytes that were stored"

_Access: TypeAlias = Callable[[int, "memoryview[int]", int], int]


class TokenBucket:
    """Tokens drop in at a rate, one for a byte, and a copy takes them.

    Every copy begins with an empty bucket: an engine that was idle has saved nothing up, as the link in
    `schedule.timeline`. Bytes pass first and are paid then, so a copy of n bytes ends n / rate after its begin, or later
    where the bytes themselves took longer. A pause that was too long is made up for within the same copy.
    """

    def __init__(self, bytes_per_s: float, clock: Callable[[], float] = time.perf_counter) -> None:
        self._bytes_per_s = bytes_per_s
        self._clock = clock
        self._paid_at_s = clock()

    def begin(self) -> None:
        """A copy begins."""
        self._paid_at_s = self._clock()

    def pay(self, nbytes: int) -> float:
        """Pay for bytes that have passed: seconds until there are tokens for them, 0 where there are already."""
        self._paid_at_s += nbytes / self._bytes_per_s
        return max(self._paid_at_s - self._clock(), 0.0)


class FileCopyEngine:
    """Copies to a file and from it, a thread for each direction. The capacity in `slow` is not looked at."""

    def __init__(self, capacity_bytes: int, slow: SlowMemory) -> None:
        self._capacity_bytes = capacity_bytes
        self._slow = slow
        self._file: _File | None = None

    def send(self, storage: torch.UntypedStorage, extents: tuple[Extent, ...]) -> CopyJob:
        """Begin to copy a storage to the file."""
        return self._open().copy(write_piece, storage, extents, "storing")

    def bring(self, storage: torch.UntypedStorage, extents: tuple[Extent, ...]) -> CopyJob:
        """Begin to copy what was sent back."""
        return self._open().copy(read_piece, storage, extents, "loading")

    def _open(self) -> _File:
        # A forked process has neither the threads nor a right to the bytes of the file.
        if self._file is None or self._file.process != os.getpid():
            self._file = _File(self._capacity_bytes, self._slow)
        return self._file


class _File:
    def __init__(self, capacity_bytes: int, slow: SlowMemory) -> None:
        self.process = os.getpid()
        self._capacity_bytes = capacity_bytes
        self._number = _new_file(capacity_bytes, slow)
        self._engines = {
            does: (CopyThread(does), TokenBucket(slow.bytes_per_s)) for does in ("storing", "loading")
        }
        threads = tuple(thread for thread, _ in self._engines.values())
        weakref.finalize(self, _close, self.process, self._number, threads)

    def copy(
        self, access: _Access, storage: torch.UntypedStorage, extents: tuple[Extent, ...], does: str
    ) -> CopyJob:
        thread, rate = self._engines[does]
        pieces = _pieces(self._number, self._capacity_bytes, access, storage, extents, rate)
        return thread.put(CopyJob(pieces, does, storage.nbytes()))


def _new_file(capacity_bytes: int, slow: SlowMemory) -> int:
    """A file without a name.

    Where the system can, its bytes are on the disk at once, so that a disk that is full is found before anything is stored.
    """
    folder = tempfile.gettempdir() if slow.folder is None else str(slow.folder)
    number = None
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            number = os.dup(file.fileno())
        if capacity_bytes and hasattr(os, "posix_fallocate"):
            os.posix_fallocate(number, 0, capacity_bytes)
        else:
            os.ftruncate(number, capacity_bytes)
    except OSError as error:
        if number is not None:
            os.close(number)
        raise TransferError(
            f"no file of {format_bytes(capacity_bytes)} can be made for storages that wait",
            where=folder,
            why=str(error),
            next_step="make room there, choose another folder, or allow fewer bytes on the host",
        ) from error
    return number


def _close(process: int, number: int, threads: tuple[CopyThread, ...]) -> None:
    if process == os.getpid():
        for thread in threads:
            thread.close()
    os.close(number)


def _pieces(
    number: int,
    capacity_bytes: int,
    access: _Access,
    storage: torch.UntypedStorage,
    extents: tuple[Extent, ...],
    rate: TokenBucket,
) -> Pieces:
    """Copy piece by piece; after each the seconds to pause. It holds the storage until it ends."""
    rate.begin()
    if not extents:
        return
    # To write after the end of a file that was cut fills it with zeros, which would be read as bytes that were stored.
    if os.fstat(number).st_size < capacity_bytes:
        raise OSError(_CUT)
    whole = memory_of(storage)
    done = 0
    for extent in extents:
        at, end = extent.start, extent.end
        while at < end:
            moved = access(number, whole[done : done + min(_PIECE_BYTES, end - at)], at)
            at += moved
            done += moved
            yield rate.pay(moved)


def memory_of(storage: torch.UntypedStorage) -> memoryview[int]:
    """The bytes of a storage of the CPU, where they lie."""
    if not storage.nbytes():
        return memoryview(b"")
    return memoryview((ctypes.c_ubyte * storage.nbytes()).from_address(storage.data_ptr())).cast("B")


def write_piece(number: int, piece: memoryview[int], at: int) -> int:
    return os.pwrite(number, piece, at)


def read_piece(number: int, piece: memoryview[int], at: int) -> int:
    moved = os.preadv(number, [piece], at)
    if not moved:
        raise OSError(_CUT)
    return moved
