"""Any pass that was not tried, on any state that was measured."""

from __future__ import annotations

import random
from typing import Any

from neaptide.planner.passes.archive import Archive, Move


class RandomPick:
    """Each untried move is as likely as another."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)

    def pick(self, archive: Archive[Any]) -> Move | None:
        """A move, drawn."""
        moves = [Move(entry.number, name) for entry in archive.entries for name in entry.untried()]
        return self._draw.choice(moves) if moves else None


def strategy(seed: int) -> RandomPick:
    """With the numbers of a seed."""
    return RandomPick(seed)
