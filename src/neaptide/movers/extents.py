"""Which bytes of a pool are taken: pieces of one range of addresses."""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Extent:
    """A piece of a pool."""

    start: int
    nbytes: int

    @property
    def end(self) -> int:
        """First byte behind it."""
        return self.start + self.nbytes


class Extents:
    """The bytes of a pool, taken in pieces.

    What is taken may lie in several pieces, so that no request fails for want of a piece that is large enough: there is
    room as long as enough bytes are free.
    """

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes = self.free_bytes = capacity_bytes
        self._holes = [Extent(0, capacity_bytes)] if capacity_bytes else []

    def take(self, nbytes: int) -> tuple[Extent, ...] | None:
        """Pieces with so many bytes together; None where fewer are free. O(holes).

        The smallest hole that has them all, else the largest holes one after the other.
        """
        if nbytes > self.free_bytes:
            return None
        self.free_bytes -= nbytes
        enough = [hole for hole in self._holes if hole.nbytes >= nbytes]
        if nbytes == 0:
            return ()
        if enough:
            return (self._cut(min(enough, key=lambda hole: (hole.nbytes, hole.start)), nbytes),)
        found = []
        for hole in sorted(self._holes, key=lambda hole: (-hole.nbytes, hole.start)):
            found.append(self._cut(hole, min(hole.nbytes, nbytes)))
            nbytes -= found[-1].nbytes
            if not nbytes:
                break
        return tuple(found)

    def give_back(self, extents: tuple[Extent, ...]) -> None:
        """Free what was taken. O(holes) for each piece."""
        for extent in extents:
            self.free_bytes += extent.nbytes
            insort(self._holes, extent)
            at = self._holes.index(extent)
            for here in (at, at - 1):  # the later neighbour first, so that `at` stays right
                if 0 <= here < len(self._holes) - 1:
                    first, second = self._holes[here : here + 2]
                    if first.end == second.start:
                        self._holes[here : here + 2] = [Extent(first.start, first.nbytes + second.nbytes)]

    def _cut(self, hole: Extent, nbytes: int) -> Extent:
        """Take the first bytes of a hole."""
        at = self._holes.index(hole)
        left = hole.nbytes - nbytes
        self._holes[at : at + 1] = [Extent(hole.start + nbytes, left)] if left else []
        return Extent(hole.start, nbytes)
