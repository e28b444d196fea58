"""The tensors that a program with points puts its results into, for the shapes that it met last."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import torch

from neaptide.planner.points.plan import Decisions
from neaptide.runtime.arena.block import Arena, Arenas
from neaptide.runtime.arena.layout_by_shape import ALIGNMENT, ArenaAtShape, ArenaOfShapes

_SHAPES_REMEMBERED: Final = 1024
_MOST_KEPT: Final = (
    32  # shapes whose tensors are kept: for a thousand results they take some 400 KiB of the host each
)


@dataclass(frozen=True, slots=True)
class RunTensors:
    """Tensors in the arena for one run.

    Attributes:
        first: by value, for first executions; None for what is outside.
        again: by repetition, for its results that have places, in order of the node's outputs.
    """

    first: list[torch.Tensor | None]
    again: list[tuple[torch.Tensor, ...]]


class ShapePlaces:
    """Places for the runs of one program, in the block that it shares with others of its step.

    Attributes:
        block_bytes: of the block that the last run had; 0 before there is one.
    """

    def __init__(self, arena: ArenaOfShapes, arenas: Arenas, *, lasting: bool) -> None:
        self.arena, self._arenas, self._lasting = arena, arenas, lasting
        self._block: Arena | None = None
        self._kept: OrderedDict[ArenaAtShape, RunTensors] = OrderedDict()
        self._within: dict[tuple[tuple[int, ...], int], ArenaAtShape] = {}
        self.block_bytes = 0
        if lasting:
            arenas.expect(arena.plan.shaped.problem.device, arena.expected_bytes)

    def within(self, decisions: Decisions, sizes: Mapping[str, int], budget_bytes: int) -> ArenaAtShape:
        """As `ArenaOfShapes.within`; one look-up for a shape that was seen under this budget."""
        key = (tuple(sizes.values()), budget_bytes)
        found = self._within.get(key)
        if found is None:
            if len(self._within) >= _SHAPES_REMEMBERED:
                self._within.clear()
            found = self._within[key] = self.arena.within(decisions, sizes, budget_bytes)
        return found

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
            found = self._kept[made] = self._made(made, block)
        self._kept.move_to_end(made)
        return found

    def let_go(self) -> None:
        """Drop all tensors in the block, which is replaced."""
        self._kept.clear()
        self._block, self.block_bytes = None, 0

    def _made(self, made: ArenaAtShape, block: Arena) -> RunTensors:
        places = self.arena.places(made)
        first: list[torch.Tensor | None] = [None] * len(self.arena.plan.shaped.graph.values)
        for value, place in places.first.items():
            first[value] = block.tensor(place)
        again = [tuple(map(block.tensor, found)) for found in places.again]
        return RunTensors(first, again)
