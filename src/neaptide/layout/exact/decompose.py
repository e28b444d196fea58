"""Takes a plain layout problem apart without losing its optimum: time components and whole-life buffers.

Components: where nobody is live across a cut, both sides use the same bytes, and the arena is the larger of the two.
A buffer that is live as long as its component goes to the bottom: whatever lies between two such buffers is a slab,
and slabs can change places. With padded sizes the buffer on top saves its padding, so the one with the largest
padding (the crown) is put on top or at the bottom, whichever is lower. Without it there may be new cuts, so this
repeats. What remains are leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from neaptide.layout.exact.sections import clique_sections
from neaptide.layout.problem import ANYWHERE, Ints, LayoutProblem

_MOST_LEVELS: Final = 500
"""How often whole-life buffers are taken off: nested lifetimes can be as deep as there are buffers."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A time component.

    Attributes:
        crown: the whole-life buffer with the largest padding; None when there is none.
        parts: pieces of what is left; empty for a leaf.
        leaf: buffers of a leaf; empty otherwise.
    """

    stack: tuple[int, ...]
    crown: int | None
    parts: tuple[int, ...]
    leaf: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Decomposition:
    """A problem as pieces; the first one holds the others, each comes before its parts."""

    problem: LayoutProblem
    pieces: tuple[Piece, ...]

    def leaves(self) -> list[int]:
        """Indices of the pieces that hold something to search for."""
        return [index for index, piece in enumerate(self.pieces) if piece.leaf]

    def capacities(self, capacity_bytes: int) -> list[int]:
        """By piece, what its leaf may use at most so that the whole fits a capacity; negative when nothing fits. O(n)."""
        inner = [capacity_bytes] * len(self.pieces)
        for index, piece in enumerate(self.pieces):
            room = inner[index] - self._stack_bytes(piece)
            if piece.crown is not None:
                size, rounded, alignment = self._sizes(piece.crown)
                room = max(room - rounded, (room - size) // alignment * alignment)
            inner[index] = room
            for part in piece.parts:
                inner[part] = room
        return inner

    def lower_bound(self, bounds: dict[int, int]) -> int:
        """The arena below which no layout goes, from bounds of the leaves' own arenas. O(n)."""
        return self._heights(bounds)[0]

    def assemble(self, leaves: dict[int, Sequence[int]]) -> tuple[int, ...]:
        """The smallest layout of the whole with these offsets, in bytes, of the leaves' buffers. O(n)."""
        sizes = self.problem.sizes.tolist()
        arenas = {
            index: max(
                offset + sizes[buffer]
                for buffer, offset in zip(self.pieces[index].leaf, offsets, strict=True)
            )
            for index, offsets in leaves.items()
        }
        heights = self._heights(arenas)
        offsets_of = [0] * len(sizes)
        bases = [0] * len(self.pieces)
        for index, piece in enumerate(self.pieces):
            base = bases[index]
            for buffer in piece.stack:
                offsets_of[buffer] = base
                base += self._sizes(buffer)[1]
            if piece.crown is not None:
                _, rounded, alignment = self._sizes(piece.crown)
                inside = self._inside(piece, heights, arenas, index)
                if self._is_crown_on_top(piece.crown, inside):
                    offsets_of[piece.crown] = base + -(-inside // alignment) * alignment
                else:
                    offsets_of[piece.crown] = base
                    base += rounded
            for part in piece.parts:
                bases[part] = base
            for buffer, offset in zip(piece.leaf, leaves.get(index, ()), strict=True):
                offsets_of[buffer] = base + offset
        return tuple(offsets_of)

    def _heights(self, arenas: dict[int, int]) -> list[int]:
        """By piece, its arena, given those of the leaves."""
        heights = [0] * len(self.pieces)
        for index in range(len(self.pieces) - 1, -1, -1):
            piece = self.pieces[index]
            inside = self._inside(piece, heights, arenas, index)
            height = self._stack_bytes(piece)
            if piece.crown is not None:
                size, rounded, alignment = self._sizes(piece.crown)
                below = -(-inside // alignment) * alignment + size
                inside = below if self._is_crown_on_top(piece.crown, inside) else rounded + inside
            elif piece.stack and not inside:
                last = self._sizes(piece.stack[-1])
                height -= last[1] - last[0]
            heights[index] = height + inside
        return heights

    def _inside(self, piece: Piece, heights: list[int], arenas: dict[int, int], index: int) -> int:
        return max((heights[part] for part in piece.parts), default=arenas.get(index, 0))

    def _is_crown_on_top(self, crown: int, inside: int) -> bool:
        size, rounded, alignment = self._sizes(crown)
        return -(-inside // alignment) * alignment + size < rounded + inside or inside == 0

    def _stack_bytes(self, piece: Piece) -> int:
        return sum(self._sizes(buffer)[1] for buffer in piece.stack)

    def _sizes(self, buffer: int) -> tuple[int, int, int]:
        """Bytes, bytes rounded up, and alignment."""
        size, alignment = int(self.problem.sizes[buffer]), int(self.problem.alignments[buffer])
        return size, -(-size // alignment) * alignment, alignment


def is_plain(problem: LayoutProblem) -> bool:
    """Whether all buffers have one alignment, no fixed offset and no gaps."""
    has_fixed = bool((problem.fixed != ANYWHERE).any())
    return not has_fixed and not problem.has_gaps and len(set(problem.alignments.tolist())) <= 1


def decompose(problem: LayoutProblem) -> Decomposition:
    """Take a plain problem apart; another one is cut into time components only. O(n log n) for each level."""
    plain = is_plain(problem)
    pieces: list[Piece | None] = [None]
    pending: list[tuple[int, Ints, int]] = [(0, np.arange(len(problem)), 0)]
    while pending:
        index, buffers, level = pending.pop()
        stack: tuple[int, ...] = ()
        crown: int | None = None
        if plain and level < _MOST_LEVELS:
            stack, crown, buffers = _whole_life(problem, buffers)
        groups = _components(problem, buffers)
        if len(groups) == 1 and not stack and crown is None:
            pieces[index] = Piece((), None, (), tuple(buffers.tolist()))
            continue
        parts = range(len(pieces), len(pieces) + len(groups))
        pieces += [None] * len(groups)
        pieces[index] = Piece(stack, crown, tuple(parts), ())
        pending += [(part, group, level + 1) for part, group in zip(parts, groups, strict=True)]
    return Decomposition(problem, tuple(piece for piece in pieces if piece is not None))


def _whole_life(problem: LayoutProblem, buffers: Ints) -> tuple[tuple[int, ...], int | None, Ints]:
    """Whole-life buffers but the crown, the crown, and the rest."""
    if not len(buffers):
        return (), None, buffers
    sections = clique_sections(problem.starts[buffers], problem.ends[buffers])
    is_whole = (sections.firsts == 0) & (sections.lasts == sections.count)
    whole, rest = buffers[is_whole], buffers[~is_whole]
    if not len(whole):
        return (), None, rest
    padding = -problem.sizes[whole] % problem.alignments[whole]
    best = int(np.argmax(padding))
    return tuple(np.delete(whole, best).tolist()), int(whole[best]), rest


def _components(problem: LayoutProblem, buffers: Ints) -> list[Ints]:
    """Buffers by time component, in order of time."""
    if not len(buffers):
        return []
    sections = clique_sections(problem.starts[buffers], problem.ends[buffers])
    group = np.searchsorted(sections.cuts(), sections.firsts, side="right")
    order = np.argsort(group, kind="stable")
    borders = np.flatnonzero(np.diff(group[order])) + 1
    return [part.astype(np.int64) for part in np.split(buffers[order], borders)]
