"""Copies between a CUDA device and pinned memory of the host, on streams of their own."""

from __future__ import annotations

from collections.abc import Callable

import torch

from neaptide.copy_engines.copy_engine import Extent
from neaptide.errors import TransferError
from neaptide.units import format_bytes


class PinnedCopyEngine:
    """Copies to one pinned block and from it, a stream for each direction.

    A copy waits for all that the current stream was told before it. `wait` makes the current stream wait for the copy, not
    the host: so bytes that are freed after it may be used by the current stream alone, as the caching allocator does.
    """

    def __init__(self, capacity_bytes: int, device: torch.device) -> None:
        self._capacity_bytes = capacity_bytes
        self._device = device
        self._block: torch.Tensor | None = None
        self._streams: tuple[torch.cuda.Stream, torch.cuda.Stream] | None = None

    def send(self, storage: torch.UntypedStorage, extents: tuple[Extent, ...]) -> StreamCopy:
        """Begin to copy a storage to the block."""
        return self._copy(storage, extents, is_out=True)

    def bring(self, storage: torch.UntypedStorage, extents: tuple[Extent, ...]) -> StreamCopy:
        """Begin to copy what was sent back."""
        return self._copy(storage, extents, is_out=False)

    def _copy(
        self, storage: torch.UntypedStorage, extents: tuple[Extent, ...], *, is_out: bool
    ) -> StreamCopy:
        block, (out, back) = self._open()
        stream = out if is_out else back
        stream.wait_stream(torch.cuda.current_stream(self._device))
        there = torch.empty(0, dtype=torch.uint8, device=self._device).set_(
            storage, 0, (storage.nbytes(),), (1,)
        )
        with torch.cuda.stream(stream):
            done = 0
            for extent in extents:
                here, part = block[extent.start : extent.end], there[done : done + extent.nbytes]
                target, source = (here, part) if is_out else (part, here)
                target.copy_(source, non_blocking=True)
                done += extent.nbytes
            return StreamCopy(stream.record_event(), storage, self._device)

    def _open(self) -> tuple[torch.Tensor, tuple[torch.cuda.Stream, torch.cuda.Stream]]:
        if self._block is None or self._streams is None:
            try:
                self._block = torch.empty(self._capacity_bytes, dtype=torch.uint8, pin_memory=True)
            except RuntimeError as error:
                raise TransferError(
                    f"no {format_bytes(self._capacity_bytes)} of pinned memory can be set aside",
                    why=str(error).splitlines()[0],
                    next_step="allow fewer bytes on the host, or raise the limit of locked memory (ulimit -l)",
                ) from error
            self._streams = (
                torch.cuda.Stream(self._device),  # type: ignore[no-untyped-call]
                torch.cuda.Stream(self._device),  # type: ignore[no-untyped-call]
            )
        return self._block, self._streams


class StreamCopy:
    """A copy on a stream."""

    def __init__(self, end: torch.cuda.Event, storage: torch.UntypedStorage, device: torch.device) -> None:
        self._end = end
        self._storage: torch.UntypedStorage | None = storage
        self._device = device

    def wait(self) -> None:
        """Make the current stream wait for the copy. A fault of the device is raised by CUDA when it is noticed."""
        torch.cuda.current_stream(self._device).wait_event(self._end)
        self._storage = None

    def abandon(self, then: Callable[[], None]) -> None:
        """Wait for the copy: what is on a stream cannot be taken back."""
        self._end.synchronize()
        self._storage = None
        then()
