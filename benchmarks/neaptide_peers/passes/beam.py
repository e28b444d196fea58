"""Level by level: all passes on the states that are kept, of whose results the best few are kept."""

from __future__ import annotations

from typing import Any, Final

from neaptide.planner.passes.archive import Archive, Move

WIDTH: Final = 6


class Beam:
    """A beam over sequences. A level holds states that no level before it held."""

    def __init__(self, width: int = WIDTH) -> None:
        self._width = width
        self._level = [0]
        self._held = {0}

    def pick(self, archive: Archive[Any]) -> Move | None:
        """The next pass of the first state of the level that has one left; of the next level where none has."""
        while self._level:
            for number in self._level:
                for name in archive.entries[number].untried():
                    return Move(number, name)
            reached = {
                after
                for number in self._level
                for after in archive.entries[number].tried.values()
                if after is not None and after not in self._held
            }
            ranked = sorted(reached, key=lambda number: (archive.entries[number].nbytes, number))
            self._level = ranked[: self._width]
            self._held.update(self._level)
        return None


def strategy(_seed: int) -> Beam:
    """Draws nothing."""
    return Beam()
