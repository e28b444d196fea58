"""A layout in characters: addresses upwards, steps to the right, a letter for what each place holds."""

from __future__ import annotations

import itertools
import string
from typing import Final

import numpy as np

from neaptide.layout.bounds import bytes_live_at
from neaptide.layout.problem import LayoutProblem
from neaptide.layout.result import Layout
from neaptide.units import format_bytes

# ASCII alone: a terminal or a log that takes nothing else shows it too.
_LETTERS: Final = {
    "activation": "a",
    "gradient": "g",
    "temporary": "t",
    "workspace": "w",
    "output": "o",
    "parameter": "p",
    "buffer": "b",
    "optimizer_state": "s",
    "input": "i",
}
_OTHER_LETTERS: Final = "cdefhjklmnqruvxyz"
_FREE: Final = "."
_NAMELESS: Final = string.ascii_uppercase  # in turn, for buffers that no kind tells apart
_TENTHS: Final = "0123456789X"
_LABEL: Final = 11  # as wide as "1023.99 MiB"
_LEAST_WIDTH: Final = 40


def layout_text(problem: LayoutProblem, layout: Layout, *, width: int = 100, height: int = 24) -> str:
    """A layout as lines of text, of at least 40 characters, with `height` rows of addresses. O(width x n).

    A column is a stretch of steps, shown at its step with the most live bytes; a row is a stretch of addresses,
    shown at its middle. Below the letters a line says how much of the arena is live in each column, in tenths.
    """
    if not len(problem):
        return "no buffers"
    first, last = int(problem.starts.min()), int(problem.ends.max())
    columns = min(max(width, _LEAST_WIDTH) - _LABEL - 2, last - first)
    moments, live = _moments(problem, first, last, columns)
    letters = _letters(problem)
    nameless = itertools.cycle(_NAMELESS)
    arena = max(layout.arena_bytes, 1)
    grid = [[_FREE] * columns for _ in range(height)]
    parts = [
        (part.start, part.end, offset + part.low, offset + part.high, letter)
        for buffer, offset in zip(problem.buffers, layout.offsets, strict=True)
        for letter in [letters.get(buffer.kind) or next(nameless)]
        for part in buffer.parts()
    ]
    starts = np.array([part[0] for part in parts], dtype=np.int64)
    ends = np.array([part[1] for part in parts], dtype=np.int64)
    for column, moment in enumerate(moments):
        for index in np.flatnonzero((starts <= moment) & (ends > moment)).tolist():
            _, _, low, high, letter = parts[index]
            for row in range(_row(low, arena, height), _row(high, arena, height)):
                grid[row][column] = letter
    lines = []
    for row in reversed(range(height)):
        label = format_bytes(arena * row // height) if row % 4 == 0 else ""
        lines.append(f"{label:>{_LABEL}} |{''.join(grid[row])}".rstrip())
    tenths = "".join(_TENTHS[min(10 * nbytes // arena, 10)] for nbytes in live)
    lines.append(f"{'live tenths':>{_LABEL}} |{tenths}")
    lines.append(f"{'step':>{_LABEL}} |{first} .. {last}")
    key = [f"{letter} {kind.replace('_', ' ')}" for kind, letter in letters.items()]
    if any(not buffer.kind for buffer in problem.buffers):
        key.append("A-Z buffers")
    lines.append(f"{', '.join(key)}, {_FREE} free, X full")
    return "\n".join(lines)


def _row(nbytes: int, arena: int, height: int) -> int:
    """The first row whose middle is not below an address: (2 row + 1) arena >= 2 height nbytes."""
    return max(0, -(-(2 * height * nbytes - arena) // (2 * arena)))


def _moments(problem: LayoutProblem, first: int, last: int, columns: int) -> tuple[list[int], list[int]]:
    """For each column a step with the most live bytes of those that it stands for, and these bytes."""
    points, totals = bytes_live_at(problem)
    edges = [first + (last - first) * k // columns for k in range(columns + 1)]
    moments, live = [], []
    for begin, end in itertools.pairwise(edges):
        low = int(np.searchsorted(points, begin, side="right")) - 1
        high = int(np.searchsorted(points, end, side="left"))
        best = low + int(totals[low:high].argmax())
        moments.append(max(begin, int(points[best])))
        live.append(int(totals[best]))
    return moments, live


def _letters(problem: LayoutProblem) -> dict[str, str]:
    kinds = {buffer.kind for buffer in problem.buffers}
    known = {kind: letter for kind, letter in _LETTERS.items() if kind in kinds}
    others = sorted(kinds - _LETTERS.keys() - {""})
    return known | dict(zip(others, itertools.cycle(_OTHER_LETTERS), strict=False))
