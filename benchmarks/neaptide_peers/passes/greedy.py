"""All passes on the current state, then the one that lowers the footprint most, and again, until none does."""

from __future__ import annotations

from typing import Any

from neaptide.planner.passes.archive import Archive, Move


class Greedy:
    """Steepest descent: it looks one pass ahead."""

    def __init__(self) -> None:
        self._at = 0

    def pick(self, archive: Archive[Any]) -> Move | None:
        """The next pass of the current state, or of the state that the best pass leads to."""
        while True:
            here = archive.entries[self._at]
            for name in here.untried():
                return Move(self._at, name)
            after = [archive.entries[number] for number in here.tried.values() if number is not None]
            best = min(after, key=lambda entry: (entry.nbytes, entry.number), default=here)
            if best.nbytes >= here.nbytes:
                return None
            self._at = best.number


def strategy(_seed: int) -> Greedy:
    """Draws nothing."""
    return Greedy()
