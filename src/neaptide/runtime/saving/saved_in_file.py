"""What autograd saves for the backward waits in a file: an eager step that keeps within fewer bytes than it takes."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import torch

from neaptide.runtime._torch_private import storage_identity, writes_so_far
from neaptide.runtime.saving.scratch_file import ScratchFile

LEAST_BYTES: Final = 4096
"""Smaller storages stay where they are."""


@dataclass(frozen=True, slots=True)
class _InFile:
    at: int
    nbytes: int
    like: torch.Tensor
    """Without bytes: dtype, shape, strides and offset of what was saved."""
    device: torch.device


class SavedInFile(torch.autograd.graph.saved_tensors_hooks):
    """A context: each storage that autograd saves is written once, and read when a backward asks for it.

    Args:
        most_bytes: as long as fewer have been written, storages are; later ones stay.
        there: storages that live through the step anyway, as of `storages_of`; they stay.
    """

    def __init__(self, file: ScratchFile, most_bytes: int, there: frozenset[int]) -> None:
        super().__init__(self._pack, self._unpack)
        self._end = file.nbytes + most_bytes
        self._file = file
        self._there = there
        self._written: dict[int, tuple[weakref.ref[Any], int, int]] = {}
        self._read: dict[int, weakref.ref[Any]] = {}

    def _pack(self, tensor: torch.Tensor) -> Any:
        if (
            tensor.layout is not torch.strided
            or tensor.is_meta
            or type(tensor) not in (torch.Tensor, torch.nn.Parameter)
        ):
            return tensor
        storage = tensor.untyped_storage()
        identity = storage_identity(storage)
        if storage.nbytes() < LEAST_BYTES or identity in self._there:
            return tensor
        known = self._written.get(identity)
        if known is None or known[0]() is None or known[1] != writes_so_far(tensor):
            if self._file.nbytes >= self._end:
                return tensor
            known = weakref.ref(storage), writes_so_far(tensor), self._file.put(storage)
            self._written[identity] = known
        like = torch.empty(0, dtype=tensor.dtype, device="meta").as_strided(
            tensor.shape, tensor.stride(), tensor.storage_offset()
        )
        return _InFile(known[2], storage.nbytes(), like, tensor.device)

    def _unpack(self, packed: Any) -> torch.Tensor:
        if not isinstance(packed, _InFile):
            return packed  # type: ignore[no-any-return]
        known = self._read.get(packed.at)
        storage = None if known is None else known()
        if storage is None:
            storage = torch.UntypedStorage(packed.nbytes, device=packed.device)  # type: ignore[no-untyped-call]
            self._file.get(packed.at, storage)
            self._read[packed.at] = weakref.ref(storage)
        like = packed.like
        seen = torch.empty(0, dtype=like.dtype, device=packed.device)
        return seen.set_(storage, like.storage_offset(), like.shape, like.stride())


def storages_of(tensors: Iterable[torch.Tensor]) -> frozenset[int]:
    """Which storages some tensors see; it keeps none of them alive."""
    dense = (tensor for tensor in tensors if tensor.layout is torch.strided)
    return frozenset(storage_identity(tensor.untyped_storage()) for tensor in dense)
