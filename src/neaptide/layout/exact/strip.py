"""The plain packing problem that the fast searches solve: rectangles on sections, sizes in units of a common grid.

Buffers of one alignment, without fixed offsets and gaps. In a layout in which nothing can be pushed down every offset
is a sum of rounded sizes, hence a multiple of their greatest common divisor: the unit. Rounding costs nothing but the
padding of what lies on top, so each buffer has a limit of its own for its top.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from neaptide.layout.exact.sections import clique_sections
from neaptide.layout.problem import ANYWHERE, Ints, LayoutProblem


def is_plain(problem: LayoutProblem) -> bool:
    """Whether all buffers have one alignment, no fixed offset and no gaps."""
    has_fixed = bool((problem.fixed != ANYWHERE).any())
    return not has_fixed and not problem.has_gaps and len(set(problem.alignments.tolist())) <= 1


@dataclass(frozen=True, slots=True)
class Strip:
    """Rectangles to be packed from the bottom up."""

    firsts: tuple[int, ...]  # by rectangle, its first section
    lasts: tuple[int, ...]  # by rectangle, one past its last section
    sizes: tuple[int, ...]  # by rectangle, in units, padding included
    paddings: tuple[int, ...]  # by rectangle, in bytes
    sections: int
    unit: int

    @staticmethod
    def of(starts: Ints, ends: Ints, sizes: Ints, alignment: int) -> Strip:
        """The strip of buffers of one alignment. O(n log n)."""
        sections = clique_sections(starts, ends)
        exact = sizes.tolist()
        rounded = [-(-size // alignment) * alignment for size in exact]
        unit = math.gcd(*rounded) or 1
        return Strip(
            tuple(sections.firsts.tolist()),
            tuple(sections.lasts.tolist()),
            tuple(size // unit for size in rounded),
            tuple(big - size for big, size in zip(rounded, exact, strict=True)),
            sections.count,
            unit,
        )

    def __len__(self) -> int:
        return len(self.sizes)

    def limits(self, capacity_bytes: int) -> list[int]:
        """By rectangle, the highest top in units with which its bytes stay below the capacity.

        >>> Strip((0,), (1,), (2,), (24,), 1, 64).limits(104)
        [2]
        """
        return [(capacity_bytes + padding) // self.unit for padding in self.paddings]

    def arena_above(self, capacity_bytes: int) -> int:
        """The least arena above a capacity: an arena is the top of some rectangle, less its padding."""
        beyond = capacity_bytes + 1
        tops = (-(-(beyond + pad) // self.unit) * self.unit - pad for pad in set(self.paddings))
        return min(tops)

    def totals(self) -> list[int]:
        """Units live at each section. O(n + sections)."""
        change = [0] * (self.sections + 1)
        for first, last, size in zip(self.firsts, self.lasts, self.sizes, strict=True):
            change[first] += size
            change[last] -= size
        total, totals = 0, []
        for delta in change[:-1]:
            total += delta
            totals.append(total)
        return totals

    def arena_bytes(self, offsets: list[int]) -> int:
        """One past the highest byte in use, of offsets in units."""
        tops = (
            (offset + size) * self.unit - padding
            for offset, size, padding in zip(offsets, self.sizes, self.paddings, strict=True)
        )
        return max(tops, default=0)


class Verdict(StrEnum):
    """What a decision about a capacity came to. Running out of budget proves nothing."""

    FITS = "fits"
    REFUTED = "refuted"
    OUT_OF_BUDGET = "out of budget"


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether everything fits below a capacity."""

    verdict: Verdict
    offsets: tuple[int, ...] | None  # in the solver's unit, when it fits
    nodes: int
