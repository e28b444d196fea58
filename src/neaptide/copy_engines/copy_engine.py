"""What moves bytes between a storage and a pool: one interface for every pair of memories."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import torch

from neaptide.cost.devices import DISK_BYTES_PER_S
from neaptide.errors import UsageError


@dataclass(frozen=True, slots=True, order=True)
class Extent:
    """A piece of a pool."""

    start: int
    nbytes: int

    @property
    def end(self) -> int:
        """First byte after it."""
        return self.start + self.nbytes


class Extents:
    """The bytes of a pool, taken in pieces.

    What is taken may lie in several pieces, so that no request fails for want of a piece that is large enough: there is
    room as long as enough bytes are free.
    """

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes = self.free_bytes = capacity_bytes
        self._holes = [Extent(0, capacity_bytes)] if capacity_bytes else []

    def take(self, nbytes: int) -> tuple[Extent, ...] | None:
        """Pieces with so many bytes together; None where fewer are free. O(holes).

        The smallest hole that has them all, else the largest holes one after the other.
        """
        if nbytes > self.free_bytes:
            return None
        self.free_bytes -= nbytes
        enough = [hole for hole in self._holes if hole.nbytes >= nbytes]
        if nbytes == 0:
            return ()
        if enough:
            return (self._cut(min(enough, key=lambda hole: (hole.nbytes, hole.start)), nbytes),)
        found = []
        for hole in sorted(self._holes, key=lambda hole: (-hole.nbytes, hole.start)):
            found.append(self._cut(hole, min(hole.nbytes, nbytes)))
            nbytes -= found[-1].nbytes
            if not nbytes:
                break
        return tuple(found)

    def give_back(self, extents: tuple[Extent, ...]) -> None:
        """Free what was taken. O(holes) for each piece."""
        for extent in extents:
            self.free_bytes += extent.nbytes
            insort(self._holes, extent)
            at = self._holes.index(extent)
            for here in (at, at - 1):  # the later neighbour first, so that `at` stays right
                if 0 <= here < len(self._holes) - 1:
                    first, second = self._holes[here : here + 2]
                    if first.end == second.start:
                        self._holes[here : here + 2] = [Extent(first.start, first.nbytes + second.nbytes)]

    def _cut(self, hole: Extent, nbytes: int) -> Extent:
        at = self._holes.index(hole)
        left = hole.nbytes - nbytes
        self._holes[at : at + 1] = [Extent(hole.start + nbytes, left)] if left else []
        return Extent(hole.start, nbytes)


class Copying(Protocol):
    """A copy that has begun."""

    def wait(self) -> None:
        """Make what comes next on the device come after the end of the copy.

        Raises:
            TransferError: the copy failed. What it read from is unchanged.
        """

    def abandon(self, then: Callable[[], None]) -> None:
        """Give the copy up; a copy that has ended stays as it is.

        `then` is called once, when nothing reads or writes the bytes of the copy any more: at once, or by another thread.
        """


class CopyEngine(Protocol):
    """Copies the storages of one device to a pool and back, in the order in which they are asked for, each way.

    The storage of a copy stays alive until the copy has ended, whoever else lets go of it.
    `tests/copy_engines/test_copy_engine_conformance.py` holds the engine of each kind of device in `host_pool.DEVICES`.
    """

    def send(self, storage: torch.UntypedStorage, extents: tuple[Extent, ...]) -> Copying:
        """Begin to copy a storage to its pieces of the pool, after what the device was told before."""

    def bring(self, storage: torch.UntypedStorage, extents: tuple[Extent, ...]) -> Copying:
        """Begin to copy the pieces back to a storage of the same size."""


@dataclass(frozen=True, slots=True)
class SlowMemory:
    """Where the storages of a program wait.

    Those of an accelerator wait in pinned memory of the host, those of the CPU in a file.

    Attributes:
        capacity_bytes: set aside before the first copy. None: as many as the schedule has there at once.
        bytes_per_s: of each direction, for the file.
        folder: of the file; None for the system's folder of temporary files.

    Raises:
        UsageError: a number that cannot be meant.
    """

    capacity_bytes: int | None = None
    bytes_per_s: float = DISK_BYTES_PER_S
    folder: Path | None = None

    def __post_init__(self) -> None:
        if self.capacity_bytes is not None and self.capacity_bytes < 0:
            raise UsageError(f"capacity_bytes={self.capacity_bytes} is no number of bytes")
        if not 0 < self.bytes_per_s < float("inf"):
            raise UsageError(f"bytes_per_s={self.bytes_per_s} is no rate", next_step="give bytes per second")


DEFAULT_SLOW_MEMORY: Final = SlowMemory()
