"""Passes in the order that the user names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neaptide.planner.passes.archive import Archive, Move


class NamedOrder:
    """Applies each of some passes once, one after the other, whatever each does to the footprint.

    A pass that finds no place when its turn comes is left out.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = list(names)
        self._last: Move | None = None
        self._at = 0

    @property
    def reached(self) -> int:
        """The state that the passes so far lead to, by its number in the archive."""
        return self._at

    def pick(self, archive: Archive[Any]) -> Move | None:
        """The next name that finds a place where the last one led."""
        if self._last is not None:
            reached = archive.entries[self._last.entry].tried[self._last.name]
            self._at = self._at if reached is None else reached
            self._last = None
        here = archive.entries[self._at]
        while self._names:
            name = self._names.pop(0)
            if name in here.measured.facts:
                if name in here.tried:  # it is known where it leads
                    reached = here.tried[name]
                    here = here if reached is None else archive.entries[reached]
                    self._at = here.number
                    continue
                self._last = Move(self._at, name)
                return self._last
        return None
