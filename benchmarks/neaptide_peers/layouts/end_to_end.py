"""Objects that several buffers share, one above the other."""

from __future__ import annotations

from collections.abc import Sequence

from neaptide.layout.problem import LayoutProblem
from neaptide.layout.result import Layout


def lay_end_to_end(
    problem: LayoutProblem, objects: Sequence[int], inner: Sequence[int], sizes: Sequence[int]
) -> Layout:
    """Objects one above the other, on top of all fixed buffers, each aligned for all of its members. O(n).

    Args:
        problem: the buffers.
        objects: by buffer, the number of its object; anything for fixed buffers.
        inner: by buffer, its offset from the start of its object, a multiple of its alignment.
        sizes: by object.
    """
    alignments = [1] * len(sizes)
    base = 0
    for index, buffer in enumerate(problem.buffers):
        if buffer.offset is not None:
            base = max(base, buffer.offset + buffer.nbytes)
        else:
            alignments[objects[index]] = max(alignments[objects[index]], buffer.alignment)
    places = []
    for size, alignment in zip(sizes, alignments, strict=True):
        base += -base % alignment
        places.append(base)
        base += size
    return Layout.of(
        problem,
        tuple(
            places[objects[index]] + inner[index] if buffer.offset is None else buffer.offset
            for index, buffer in enumerate(problem.buffers)
        ),
    )
