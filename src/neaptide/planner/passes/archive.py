"""All states that a search over passes has measured, and which pass led from which to which."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from neaptide.planner.passes.space import Measurement

S = TypeVar("S")


class Move(NamedTuple):
    """A pass, to be applied to an entry of the archive."""

    entry: int
    name: str


@dataclass(slots=True)
class Entry(Generic[S]):
    """A state that was measured.

    Attributes:
        number: its place in the archive.
        parent: the entry from which it was reached first, by the pass `by`; None for the start.
        depth: passes on the way from the start.
        tried: by pass that was applied here, the entry that it led to; None where it changed nothing.
    """

    number: int
    state: S
    measured: Measurement
    parent: int | None
    by: str
    depth: int
    tried: dict[str, int | None] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Footprint by the best order."""
        return self.measured.nbytes

    def untried(self) -> Iterator[str]:
        """Passes that find a place here and were not applied yet, in the order of the table."""
        return (name for name in self.measured.facts if name not in self.tried)


class Archive(Generic[S]):
    """Entries in the order in which they were measured, each state once."""

    def __init__(self, key: str, start: S, measured: Measurement) -> None:
        self.entries: list[Entry[S]] = [Entry(0, start, measured, None, "", 0)]
        self._number_of = {key: 0}
        self._best = self.entries[0]

    @property
    def best(self) -> Entry[S]:
        """The entry of fewest bytes, the first of several."""
        return self._best

    def number_of(self, key: str) -> int | None:
        """The entry of a state that was measured before."""
        return self._number_of.get(key)

    def reached(self, move: Move, number: int | None) -> None:
        """Note what a pass led to: an entry that was there, or None where it changed nothing."""
        self.entries[move.entry].tried[move.name] = number

    def add(self, move: Move, key: str, state: S, measured: Measurement) -> Entry[S]:
        """Note a new state."""
        depth = self.entries[move.entry].depth + 1
        entry = Entry(len(self.entries), state, measured, move.entry, move.name, depth)
        self.entries.append(entry)
        self._number_of[key] = entry.number
        self.reached(move, entry.number)
        if entry.nbytes < self._best.nbytes:
            self._best = entry
        return entry

    def path(self, number: int) -> tuple[Entry[S], ...]:
        """Entries from the start to one, both included."""
        found = [self.entries[number]]
        while (parent := found[-1].parent) is not None:
            found.append(self.entries[parent])
        return tuple(reversed(found))

    def passes(self, number: int) -> tuple[str, ...]:
        """Passes from the start to an entry."""
        return tuple(entry.by for entry in self.path(number)[1:])
