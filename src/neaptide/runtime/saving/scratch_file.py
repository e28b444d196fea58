"""Bytes of storages in a file without a name, for a while: where the memory of a device is all taken, or spoken for."""

from __future__ import annotations

import ctypes
import os
import tempfile
from types import TracebackType
from typing import Self

import torch

from neaptide.errors import TransferError
from neaptide.movers.slow_memory import SlowMemory


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
        at, done = self.nbytes, 0
        here = storage if storage.device.type == "cpu" else storage.cpu()  # type: ignore[no-untyped-call]
        try:
            while done < here.nbytes():
                done += os.pwrite(self._file.fileno(), memory_of(here)[done:], at + done)
        except OSError as error:
            raise self._failed(error) from error
        self.nbytes += done
        return at

    def get(self, at: int, storage: torch.UntypedStorage) -> None:
        """Fill a storage with what one of its size was put."""
        is_here = storage.device.type == "cpu"
        here = storage if is_here else torch.UntypedStorage(storage.nbytes())  # type: ignore[no-untyped-call]
        done = 0
        try:
            while done < here.nbytes():
                done += _read(self._file.fileno(), memory_of(here)[done:], at + done)
        except OSError as error:
            raise self._failed(error) from error
        if here is not storage:
            storage.copy_(here)

    def _failed(self, error: OSError) -> TransferError:
        return TransferError(
            "bytes cannot wait in a file",
            where=self._folder,
            why=str(error),
            next_step="make room there, or choose another folder",
        )


def _read(number: int, piece: memoryview[int], at: int) -> int:
    moved = os.preadv(number, [piece], at)
    if not moved:
        raise OSError("the file ends before the bytes that were put")
    return moved


def memory_of(storage: torch.UntypedStorage) -> memoryview[int]:
    """The bytes of a storage of the CPU, where they lie."""
    if not storage.nbytes():
        return memoryview(b"")
    return memoryview((ctypes.c_ubyte * storage.nbytes()).from_address(storage.data_ptr())).cast("B")
