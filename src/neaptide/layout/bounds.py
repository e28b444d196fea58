"""Lower bounds of an arena."""

from __future__ import annotations

import numpy as np

from neaptide.layout.problem import ANYWHERE, Ints, LayoutProblem


def bytes_live_at(problem: LayoutProblem, sizes: Ints | None = None) -> tuple[Ints, Ints]:
    """Bytes in use as a step function: change points, ascending, and the bytes from each of them on. O(n log n).

    Bytes that a gap leaves alone do not count.

    Args:
        sizes: bytes by buffer in place of its own; windows of gaps keep theirs.
    """
    times: list[int] = []
    changes: list[int] = []
    for index, buffer in enumerate(problem.buffers):
        whole = buffer.nbytes if sizes is None else int(sizes[index])
        for part in buffer.parts():
            size = whole if part.high - part.low == buffer.nbytes else part.high - part.low
            times += (part.start, part.end)
            changes += (size, -size)
    points, where = np.unique(np.array(times, dtype=np.int64), return_inverse=True)
    change = np.zeros(len(points), dtype=np.int64)
    np.add.at(change, where, np.array(changes, dtype=np.int64))
    return points, np.cumsum(change)


def live_bytes(problem: LayoutProblem) -> int:
    """Most bytes in use at one step: LOAD. O(n log n)."""
    return int(bytes_live_at(problem)[1].max(initial=0))


def arena_lower_bound(problem: LayoutProblem) -> int:
    """No layout has a smaller arena. O(n log n).

    The largest of: the bytes in use at any step; the top of each fixed buffer; and, where all buffers have one
    alignment and no fixed offset, the same with every size but the smallest padding saved: offsets are multiples of
    the alignment, so every buffer that something lies on takes up its size rounded up, and at each step at most one
    buffer lies on top.
    """
    bound = live_bytes(problem)
    tops = (problem.fixed + problem.sizes)[problem.fixed != ANYWHERE]
    bound = max(bound, int(tops.max(initial=0)))
    if len(problem) and not problem.has_gaps and len(set(problem.alignments.tolist())) == 1:
        bound = max(bound, _padded_bound(problem, int(problem.alignments[0])))
    return bound


def _padded_bound(problem: LayoutProblem, alignment: int) -> int:
    """Rounded sizes at each step, less the largest padding of a buffer that is live there."""
    rounded = -(-problem.sizes // alignment) * alignment
    padding = rounded - problem.sizes
    if not padding.any():
        return 0
    points, total = bytes_live_at(problem, rounded)
    largest = np.zeros(len(points), dtype=np.int64)
    first = np.searchsorted(points, problem.starts)
    last = np.searchsorted(points, problem.ends)
    for begin, end, pad in zip(first.tolist(), last.tolist(), padding.tolist(), strict=True):
        window = largest[begin:end]
        np.maximum(window, pad, out=window)
    return int((total - largest).max(initial=0))
