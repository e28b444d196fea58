"""What moves bytes between a storage and a pool: one interface for every pair of memories."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch

from neaptide.movers.extents import Extent


class Copying(Protocol):
    """A copy that has begun."""

    def wait(self) -> None:
        """Make what comes next on the device come behind the end of the copy.

        Raises:
            TransferError: the copy failed. What it read from is unchanged.
        """

    def abandon(self, then: Callable[[], None]) -> None:
        """Give the copy up; a copy that has ended stays as it is.

        Args:
            then: called once, when nothing reads or writes the bytes of the copy any more: at once, or by another
                thread.
        """


class Mover(Protocol):
    """Copies the storages of one device to a pool and back, in the order in which they are asked for, each way.

    The storage of a copy stays alive until the copy has ended, whoever else lets go of it.
    """

    def send(self, storage: torch.UntypedStorage, extents: tuple[Extent, ...]) -> Copying:
        """Begin to copy a storage to its pieces of the pool, behind what the device was told before."""

    def bring(self, storage: torch.UntypedStorage, extents: tuple[Extent, ...]) -> Copying:
        """Begin to copy the pieces back to a storage of the same size."""
