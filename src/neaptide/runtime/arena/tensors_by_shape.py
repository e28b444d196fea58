"""The tensors that a program with points puts its results into, for the shapes that it met last."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final

import torch

from neaptide.errors import LoweringError
from neaptide.lower.places import Place
from neaptide.lower.program import Program
from neaptide.runtime.arena.layout_by_shape import ALIGNMENT, ArenaAtShape, ArenaOfShapes, RunTensors

_MOST_KEPT: Final = (
    32  # shapes whose tensors are kept: for a thousand results they take some 400 KiB of the host each
)


class ShapePlaces:
    """Places for the runs of one program, in the block that it shares with others of its step.

    Attributes:
        block_bytes: of the block that the last run had; 0 before there is one.
    """

    def __init__(self, arena: ArenaOfShapes, arenas: Arenas, *, lasting: bool) -> None:
        self.arena, self._arenas, self._lasting = arena, arenas, lasting
        self._block: Arena | None = None
        self._kept: OrderedDict[ArenaAtShape, RunTensors] = OrderedDict()
        self.block_bytes = 0
        if lasting:
            arenas.expect(arena.plan.shaped.problem.device, arena.expected_bytes)

    def tensors(self, made: ArenaAtShape, budget_bytes: int) -> RunTensors:
        """Tensors for a run of a shape; one look-up for a shape that was seen lately.

        A block that is larger than the shape needs is used, unless the run would be above its budget in it.
        """
        room = budget_bytes - made.peak_with_workspace_bytes
        most = made.arena_bytes + max(room, 0)
        block = self._arenas.reserve(
            self.arena.plan.shaped.problem.device,
            made.arena_bytes,
            ALIGNMENT,
            lasting=self._lasting,
            most_bytes=most,
        )
        if block is not self._block:
            self._kept.clear()
            self._block, self.block_bytes = block, block.nbytes
        found = self._kept.get(made)
        if found is None:
            if len(self._kept) >= _MOST_KEPT:
                self._kept.popitem(last=False)
            found = self._kept[made] = self.arena.tensors(made, block.tensor)
        self._kept.move_to_end(made)
        return found

    def let_go(self) -> None:
        """Drop all tensors in the block, which is replaced."""
        self._kept.clear()
        self._block, self.block_bytes = None, 0


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
