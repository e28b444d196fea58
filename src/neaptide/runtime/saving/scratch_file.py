"""Bytes of storages in a file without a name, for a while: where the memory of a device is all taken, or spoken for."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

import torch

from neaptide.copy_engines.copy_engine import SlowMemory
from neaptide.copy_engines.file_copy_engine import memory_of, read_piece
from neaptide.errors import TransferError
from neaptide.runtime._torch_private import storage_identity, writes_so_far


class ScratchFile:
    """A file that grows, gone when the context is left. What is put stays as it is until then.

    Args:
        slow: names the folder; its rate is not kept to.
    """

    def __init__(self, slow: SlowMemory) -> None:
        self.nbytes = 0
        self._folder = tempfile.gettempdir() if slow.folder is None else str(slow.folder)

    def __enter__(self) -> Self:
        try:
            self._file = tempfile.TemporaryFile(dir=self._folder, buffering=0)
        except OSError as error:
            raise self._failed(error) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def put(self, storage: torch.UntypedStorage) -> int:
        """Write the bytes of a storage; gives where they are."""
        here = storage if storage.device.type == "cpu" else storage.cpu()  # type: ignore[no-untyped-call]
        at = self.nbytes
        self._move(os.pwrite, here, at)
        self.nbytes += here.nbytes()
        return at

    def get(self, at: int, storage: torch.UntypedStorage) -> None:
        """Fill a storage with what one of its size was put."""
        is_here = storage.device.type == "cpu"
        here = storage if is_here else torch.UntypedStorage(storage.nbytes())  # type: ignore[no-untyped-call]
        self._move(read_piece, here, at)
        if here is not storage:
            storage.copy_(here)

    def _move(
        self, access: Callable[[int, memoryview[int], int], int], here: torch.UntypedStorage, at: int
    ) -> None:
        done = 0
        try:
            while done < here.nbytes():
                done += access(self._file.fileno(), memory_of(here)[done:], at + done)
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> TransferError:
        return TransferError(
            "bytes cannot wait in a file",
            where=self._folder,
            why=str(error),
            next_step="make room there, or choose another folder",
        )


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
