"""Storages that wait on the host while a program runs: what its store, load and wait steps call.

The tensors of a storage stay as they are and only its bytes go, so that every view of it finds them again. Copies are made
at once, where the step stands that begins them; nothing touches a storage in between, so its bits are the same whenever
that is. This pool is for storages on the CPU, whose bytes it keeps outside of tensors.
"""

from __future__ import annotations

import ctypes
import weakref
from typing import Final

import torch

_RESIZE: Final = "neaptide::resize_storage_"
# An operation, so that whoever counts bytes at the dispatcher sees the change.
torch.library.define(_RESIZE, "(Tensor(a!) tensor, int nbytes) -> ()")


@torch.library.impl(_RESIZE, "CompositeExplicitAutograd")
def _resize_storage(tensor: torch.Tensor, nbytes: int) -> None:
    tensor.untyped_storage().resize_(nbytes)


class HostPool:
    """Bytes on the host.

    Attributes:
        live_bytes: kept now.
        peak_bytes: most that there have been.
    """

    def __init__(self) -> None:
        self.live_bytes = self.peak_bytes = 0

    def store(self, tensor: torch.Tensor) -> HostCopy:
        """Copy the storage of a tensor to the host. It is kept until the copy dies."""
        copy = HostCopy(tensor)
        weakref.finalize(copy, self._give_back, copy.nbytes)
        self.live_bytes += copy.nbytes
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        return copy

    def _give_back(self, nbytes: int) -> None:
        self.live_bytes -= nbytes


class HostCopy:
    """The bytes of one storage, on the host.

    Attributes:
        nbytes: how many.
    """

    __slots__ = ("__weakref__", "_kept", "_tensor", "nbytes")

    def __init__(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        self.nbytes = storage.nbytes()
        self._tensor = tensor
        self._kept = ctypes.string_at(storage.data_ptr(), self.nbytes) if self.nbytes else b""

    def leave(self) -> None:
        """The copy is done: take the bytes from the device."""
        torch.ops.neaptide.resize_storage_(self._tensor, 0)

    def load(self) -> None:
        """Have the bytes on the device again."""
        torch.ops.neaptide.resize_storage_(self._tensor, self.nbytes)
        if self.nbytes:
            ctypes.memmove(self._tensor.untyped_storage().data_ptr(), self._kept, self.nbytes)
