"""Storages that wait on the host while a program runs: what its store, load and wait steps call.

The tensors of a storage stay as they are and only its bytes go, so that every view of it finds them again.
"""

from __future__ import annotations

import weakref
from collections import deque
from typing import Final

import torch

from neaptide.copy_engines.copy_engine import CopyEngine, Copying, Extent, Extents, SlowMemory
from neaptide.copy_engines.file_copy_engine import FileCopyEngine
from neaptide.copy_engines.pinned_copy_engine import PinnedCopyEngine
from neaptide.cost._torch_private import storage_identity
from neaptide.cost.cards.allocator_events import note_leaving
from neaptide.errors import TransferError
from neaptide.units import format_bytes

_RESIZE: Final = "neaptide::resize_storage_"
# An operation, so that whoever counts bytes at the dispatcher sees the change.
torch.library.define(_RESIZE, "(Tensor(a!) tensor, int nbytes) -> ()")


@torch.library.impl(_RESIZE, "CompositeExplicitAutograd")
def _resize_storage(tensor: torch.Tensor, nbytes: int) -> None:
    tensor.untyped_storage().resize_(nbytes)


DEVICES: Final = ("cpu", "cuda")
"""Kinds of devices whose storages can wait on the host."""
# A disk may fail for a moment, and what the caller owns is nowhere else.
_LOADS: Final = 2


def make_copy_engine(device: torch.device, capacity_bytes: int, slow: SlowMemory) -> CopyEngine:
    """What moves the storages of a device; costs nothing before its first copy."""
    if device.type == "cuda":
        return PinnedCopyEngine(capacity_bytes, device)
    return FileCopyEngine(capacity_bytes, slow)


class HostPool:
    """Bytes that the storages of one device wait in.

    Attributes:
        peak_bytes: most that there have been.
    """

    def __init__(self, capacity_bytes: int, copy_engine: CopyEngine) -> None:
        self.peak_bytes = 0
        self._copy_engine = copy_engine
        self._extents = Extents(capacity_bytes)
        # Other threads and the garbage collector give back at any time, so only `append` is theirs.
        self._returned: deque[tuple[Extent, ...]] = deque()
        self._of_caller = OwnedCopies()

    @property
    def live_bytes(self) -> int:
        """Kept now."""
        while self._returned:
            self._extents.give_back(self._returned.popleft())
        return self._extents.capacity_bytes - self._extents.free_bytes

    def store(self, tensor: torch.Tensor, owned_as: str = "") -> HostCopy:
        """Begin to copy the storage of a tensor. Its bytes here are taken until the copy dies.

        Args:
            owned_as: what the program calls it where the caller owns it: `bring_back` has it on the device again.
        """
        if owned_as and not tensor.untyped_storage().resizable():
            raise TransferError(
                f"{owned_as} cannot leave the device",
                why="something else has its bytes: an array, another process or a file",
                next_step="plan again for the tensors that there are now",
            )
        nbytes = tensor.untyped_storage().nbytes()
        used = self.live_bytes
        extents = self._extents.take(nbytes)
        if extents is None:
            raise TransferError(
                f"{format_bytes(nbytes)} do not fit on the host",
                why=f"{format_bytes(used)} of {format_bytes(self._extents.capacity_bytes)} are taken",
                next_step="plan again with more bytes on the host",
            )
        self.peak_bytes = max(self.peak_bytes, used + nbytes)
        copy = HostCopy(tensor, extents, self._copy_engine, self._returned)
        if owned_as:
            self._of_caller.add(owned_as, copy)
        return copy

    def bring_back(self) -> tuple[str, ...]:
        """Have all that the caller owns on the device again; the names of what is lost."""
        return self._of_caller.bring_back()


class OwnedCopies:
    """Copies of what the caller owns, which somebody else keeps: a program does, and when it dies, its frames do."""

    def __init__(self) -> None:
        self._known: list[tuple[str, weakref.ref[HostCopy]]] = []

    def add(self, name: str, copy: HostCopy) -> None:
        """Know one more copy, by the name of what it is of."""
        self._known = [entry for entry in self._known if entry[1]() is not None]
        self._known.append((name, weakref.ref(copy)))

    def clear(self) -> None:
        """Know none any more."""
        self._known.clear()

    def bring_back(self) -> tuple[str, ...]:
        """Have all on the device again, the last one first; the names of what is lost. A load that fails is tried again once."""
        lost: list[str] = []
        failures = 0
        while self._known:
            name, known = self._known[-1]
            copy = known()
            if copy is not None and copy.is_away:
                try:
                    copy.load()
                    copy.arrive()
                except TransferError:
                    failures += 1
                    if failures < _LOADS:
                        continue
                    lost.append(name)
                except KeyboardInterrupt:
                    # Whoever interrupts has the state back first.
                    continue
            failures = 0
            self._known.pop()
        return tuple(reversed(lost))


class HostCopy:
    """One storage on its way to the host and back.

    Attributes:
        is_away: whether its bytes have left the device, or are not all back.
    """

    __slots__ = (
        "__weakref__",
        "_copy_engine",
        "_extents",
        "_last",
        "_tensor",
        "is_away",
        "nbytes",
        "storage",
    )

    def __init__(
        self,
        tensor: torch.Tensor,
        extents: tuple[Extent, ...],
        copy_engine: CopyEngine,
        returned: deque[tuple[Extent, ...]],
    ) -> None:
        self._last: list[Copying] = []
        weakref.finalize(self, _give_back, self._last, extents, returned).atexit = False
        self.nbytes = tensor.untyped_storage().nbytes()
        self.storage = storage_identity(tensor.untyped_storage())
        self.is_away = False
        self._tensor = tensor
        self._extents = extents
        self._copy_engine = copy_engine
        self._last.append(copy_engine.send(tensor.untyped_storage(), extents))

    def leave(self) -> None:
        """Wait for the copy, then take the bytes from the device.

        Raises:
            TransferError: the copy failed; the bytes are still on the device.
        """
        self._last[0].wait()
        self.is_away = True
        note_leaving(self._tensor.untyped_storage())
        torch.ops.neaptide.resize_storage_(self._tensor, 0)

    def load(self) -> None:
        """Have the bytes on the device again, and begin to copy them back."""
        torch.ops.neaptide.resize_storage_(self._tensor, self.nbytes)
        self._last[0] = self._copy_engine.bring(self._tensor.untyped_storage(), self._extents)

    def arrive(self) -> None:
        """Wait for the copy back."""
        self._last[0].wait()
        self.is_away = False


def _give_back(last: list[Copying], extents: tuple[Extent, ...], returned: deque[tuple[Extent, ...]]) -> None:
    if last:
        last[0].abandon(lambda: returned.append(extents))
    else:
        returned.append(extents)
