"""The block that planned programs run in, and the tensors at their places in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import torch

from neaptide.errors import LoweringError
from neaptide.lower.places import Place
from neaptide.lower.program import Program

_BYTE: Final = torch.uint8


class Arena:
    """One block of bytes on one device; programs that never run at the same time share it."""

    def __init__(self, device: str, nbytes: int, alignment: int) -> None:
        self.device = torch.device(device)
        self.nbytes = nbytes
        self.block = torch.empty(nbytes, dtype=_BYTE, device=self.device)
        if nbytes and self.block.data_ptr() % alignment:
            raise LoweringError(
                f"the arena on {device} does not begin at a multiple of {alignment} bytes",
                why=f"the allocator gave the address {self.block.data_ptr():#x}",
                next_step="run without an arena",
            )

    def tensor(self, place: Place) -> torch.Tensor:
        """The tensor at a place; it keeps the block alive."""
        dtype: torch.dtype = getattr(torch, place.dtype)
        seen = torch.empty(0, dtype=dtype, device=self.device)
        return seen.set_(
            self.block.untyped_storage(), place.offset // dtype.itemsize, place.shape, place.strides
        )

    def tensors(self, program: Program) -> Mapping[str, torch.Tensor]:
        """What a program's names of places stand for."""
        return {name: self.tensor(place) for name, place in program.places.items()}


class Arenas:
    """The blocks of a planned step, one for each device.

    A block is as large as the largest of the usual steps met so far needs. A first step, which makes state and is run
    once, may need more; its block goes when a usual step comes.

    Args:
        forget: called before a block is replaced: whoever holds tensors in the old one lets go.
    """

    def __init__(self, forget: Callable[[], None]) -> None:
        self._forget = forget
        self._arenas: dict[str, Arena] = {}
        self._lasting: dict[str, int] = {}
        self._expected: dict[str, int] = {}

    def reserve(
        self, device: str, nbytes: int, alignment: int, *, lasting: bool, most_bytes: int | None = None
    ) -> Arena:
        """A block of at least that many bytes: the one that there is, or a new one.

        Args:
            most_bytes: that the block may have, at least as many; None for as many as other programs need.
        """
        if lasting:
            expected = self._expected.get(device, 0)
            nbytes = max(nbytes, expected if most_bytes is None else min(expected, most_bytes))
            self._lasting[device] = max(self._lasting.get(device, 0), nbytes)
        usual = self._lasting.get(device, 0)
        known = self._arenas.get(device)
        most = max(usual, known.nbytes if known is not None else 0) if most_bytes is None else most_bytes
        if known is not None and nbytes <= known.nbytes <= most and (known.nbytes <= usual or not lasting):
            return known
        if known is not None:
            self._forget()
            del self._arenas[device], known
        self._arenas[device] = Arena(device, max(min(usual, most), nbytes), alignment)
        return self._arenas[device]

    def expect(self, device: str, nbytes: int) -> None:
        """Let blocks of usual steps have so many bytes from now on, where they may."""
        self._expected[device] = max(self._expected.get(device, 0), nbytes)

    def blocks(self) -> list[torch.Tensor]:
        """The tensors that hold the blocks."""
        return [arena.block for arena in self._arenas.values()]
