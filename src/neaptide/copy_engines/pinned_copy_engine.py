"""Copies between a CUDA device and pinned memory of the host, on streams of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from neaptide.copy_engines.copy_engine import Extent
from neaptide.copy_engines.pinned_block import pinned_block


class Card:
    """What a device does for copies: streams, pinned memory, and a copy that is begun on a stream."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def current_stream(self) -> Any:
        """The stream that operations of this thread are told to."""
        return torch.cuda.current_stream(self.device)

    def new_stream(self) -> Any:
        """A stream beside all others."""
        return torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]

    def block(self, nbytes: int) -> torch.Tensor:
        """Pinned memory of so many bytes, and no more."""
        return pinned_block(nbytes)

    def bytes_of(self, storage: torch.UntypedStorage) -> torch.Tensor:
        """A storage of the device as bytes."""
        whole = torch.empty(0, dtype=torch.uint8, device=self.device)
        return whole.set_(storage, 0, (storage.nbytes(),), (1,))

    def copy(self, stream: Any, target: torch.Tensor, source: torch.Tensor) -> None:
        """Begin a copy; the host goes on."""
        with torch.cuda.stream(stream):
            target.copy_(source, non_blocking=True)


class PinnedCopyEngine:
    """Copies to one pinned block and from it, a stream for each direction.

    A copy waits for all that the current stream was told before it. `wait` makes the current stream wait for the copy, not
    the host: so bytes that are freed after it may be used by the current stream alone, as the caching allocator does. Nothing
    here has the host wait for the device.
    """

    def __init__(self, capacity_bytes: int, device: torch.device, card: Card | None = None) -> None:
        self._capacity_bytes = capacity_bytes
        self._card = Card(device) if card is None else card
        self._block: torch.Tensor | None = None
        self._streams: tuple[Any, Any] | None = None

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
        stream, owner = out if is_out else back, self._card.current_stream()
        stream.wait_stream(owner)
        there = self._card.bytes_of(storage)
        done = 0
        for extent in extents:
            here, part = block[extent.start : extent.end], there[done : done + extent.nbytes]
            self._card.copy(stream, *((here, part) if is_out else (part, here)))
            done += extent.nbytes
        return StreamCopy(stream.record_event(), storage, owner, self._card)

    def _open(self) -> tuple[torch.Tensor, tuple[Any, Any]]:
        if self._block is None or self._streams is None:
            self._block = self._card.block(self._capacity_bytes)
            self._streams = self._card.new_stream(), self._card.new_stream()
        return self._block, self._streams


class StreamCopy:
    """A copy on a stream; `owner` is the stream whose bytes the storage has."""

    def __init__(self, end: Any, storage: torch.UntypedStorage, owner: Any, card: Card) -> None:
        self._end = end
        self._storage: torch.UntypedStorage | None = storage
        self._owner, self._card = owner, card

    def wait(self) -> None:
        """Make the current stream wait for the copy. A fault of the device is raised by CUDA when it is noticed."""
        self._card.current_stream().wait_event(self._end)
        self._storage = None

    def abandon(self, then: Callable[[], None]) -> None:
        """Let go of the copy: what is on a stream cannot be taken back, so what is told next of the storage's bytes waits for it.

        Its piece of the block is first written by the stream of copies out, after the copies that it has begun.
        """
        if self._storage is not None:
            self._owner.wait_event(self._end)
        self._storage = None
        then()
