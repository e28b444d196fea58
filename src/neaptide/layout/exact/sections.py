"""Time as a list of sections: one for each maximal set of rectangles that are live together.

Whether rectangles clash depends only on which of them meet, so the steps between two maximal sets can be left out:
2,144 lifetimes of a training graph become 1,279 sections (clique compression).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neaptide.layout.problem import Ints, LayoutProblem


@dataclass(frozen=True, slots=True)
class Sections:
    """Lifetimes as ranges of sections."""

    firsts: Ints  # by lifetime, its first section
    lasts: Ints  # by lifetime, one past its last section
    count: int

    def totals(self, sizes: Ints) -> Ints:
        """The sum of sizes at each section. O(n + sections)."""
        change = np.zeros(self.count + 1, dtype=np.int64)
        np.add.at(change, self.firsts, sizes)
        np.subtract.at(change, self.lasts, sizes)
        return np.cumsum(change)[:-1]

    def cuts(self) -> Ints:
        """Sections, ascending, at which nothing that was live before is still live; the first is 0. O(n + sections)."""
        crossing = np.zeros(self.count + 1, dtype=np.int64)
        np.add.at(crossing, np.minimum(self.firsts + 1, self.lasts), 1)
        np.subtract.at(crossing, self.lasts, 1)
        return np.flatnonzero(np.cumsum(crossing)[:-1] == 0).astype(np.int64)


def clique_sections(starts: Ints, ends: Ints) -> Sections:
    """Sections of half-open lifetimes. O(n log n).

    A section begins at a start that has an end between it and the start before it.
    """
    points = np.unique(starts)
    ended = np.searchsorted(np.sort(ends), points, side="right")
    section = np.cumsum(np.diff(ended, prepend=-1) > 0) - 1
    firsts = section[np.searchsorted(points, starts)]
    lasts = section[np.searchsorted(points, ends) - 1] + 1
    return Sections(
        firsts.astype(np.int64), lasts.astype(np.int64), int(section[-1]) + 1 if len(points) else 0
    )


@dataclass(frozen=True, slots=True)
class PartSections:
    """The rectangles of all buffers, on sections; a buffer with gaps has several."""

    buffers: Ints  # by part, the index of its buffer; parts of a buffer are neighbours, in order of time
    sections: Sections
    lows: Ints  # by part, its first byte, from the offset of its buffer
    highs: Ints  # by part, one past its last byte


def part_sections(problem: LayoutProblem) -> PartSections:
    """The rectangles of a problem, on sections. O(n log n)."""
    rows = [
        (index, part.start, part.end, part.low, part.high)
        for index, buffer in enumerate(problem.buffers)
        for part in buffer.parts()
    ]
    table = np.array(rows, dtype=np.int64).reshape(-1, 5)
    return PartSections(table[:, 0], clique_sections(table[:, 1], table[:, 2]), table[:, 3], table[:, 4])


def components(problem: LayoutProblem) -> list[Ints]:
    """Buffers by time component, in order of time: across a cut nobody is live, so both sides use the same bytes. O(n log n)."""
    if not len(problem):
        return []
    sections = clique_sections(problem.starts, problem.ends)
    group = np.searchsorted(sections.cuts(), sections.firsts, side="right")
    order = np.argsort(group, kind="stable")
    borders = np.flatnonzero(np.diff(group[order])) + 1
    return [part.astype(np.int64) for part in np.split(order, borders)]
