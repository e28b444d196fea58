"""Profiles as valleys and hills, and their canonical two-sided form.

A stretch of ops that runs in a fixed order is, to everything that runs beside it, a sequence of segments: each lifts
the bytes by `rise` while it runs and leaves them changed by `delta`. Most ops vanish into a neighbour: what remains
falls to the lowest valley over rising hills and climbs from it over falling ones. After Liu (1987) and Jin et al.
(arXiv 2312.13526).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

Rope: TypeAlias = "int | tuple[Rope, ...]"
"""Op indices in running order, nested as they were joined; joining costs nothing."""


class Segment(NamedTuple):
    """A stretch that runs without interruption.

    Attributes:
        rise: highest bytes while it runs, above the bytes before it.
        delta: bytes after it less bytes before it.
    """

    rise: int
    delta: int
    ops: Rope


def flatten(rope: Rope) -> tuple[int, ...]:
    """The op indices of a rope in order. O(size), without recursion.

    >>> flatten(((1, 2), (3,), 4))
    (1, 2, 3, 4)
    """
    found: list[int] = []
    stack: list[Rope] = [rope]
    while stack:
        top = stack.pop()
        if isinstance(top, int):
            found.append(top)
        else:
            stack.extend(reversed(top))
    return tuple(found)


def canonical(segments: Sequence[Segment]) -> list[Segment]:
    """Join segments until only those are left that matter to anything running beside them.

    The order of ops stays. Before the lowest valley hills rise and valleys fall, after it hills fall and valleys
    rise. O(len(segments)).
    """
    if len(segments) < 2:
        return list(segments)
    level = lowest = bottom = 0
    for index, segment in enumerate(segments):
        level += segment.delta
        if level <= lowest:  # the last of equals: what climbs after it really climbs
            lowest, bottom = level, index + 1
    down = _fold([(s.rise - s.delta, -s.delta, s.ops) for s in reversed(segments[:bottom])], mirrored=True)
    falling = [Segment(rise - delta, -delta, ops) for rise, delta, ops in reversed(down)]
    up = _fold(segments[bottom:], mirrored=False)
    return falling + [Segment(*segment) for segment in up]


def merge_independent(profiles: Iterable[Sequence[Segment]]) -> list[Segment]:
    """Interleave canonical profiles that share no bytes and no dependency.

    First all segments that go down, those with the smallest rise first; then all that go up, those first whose hill
    stands highest above the valley after it. The result is canonical and dominates every interleaving.
    O(n log n). Two-sided form of the rule of Liu (1987).

    Profiles that are not canonical give a legal order without the guarantee.
    """
    down: list[Segment] = []
    up: list[Segment] = []
    for segments in profiles:
        for segment in segments:
            (up if segment.delta > 0 else down).append(segment)
    # A reversed sort is stable too: segments of one profile keep their order.
    down.sort(key=lambda segment: segment.rise)
    up.sort(key=lambda segment: segment.rise - segment.delta, reverse=True)
    return canonical(down + up)


def _fold(segments: Iterable[tuple[int, int, Rope]], *, mirrored: bool) -> list[tuple[int, int, Rope]]:
    """Make hills fall and valleys rise, from a start that is the lowest valley. Amortised O(1) per segment."""
    folded: list[tuple[int, int, Rope]] = []
    for rise, delta, ops in segments:
        while folded:
            before_rise, before_delta, before_ops = folded[-1]
            if before_rise > before_delta + rise and delta > 0:
                break
            folded.pop()
            rise = max(before_rise, before_delta + rise)  # noqa: PLW2901 - grows as it swallows
            delta += before_delta  # noqa: PLW2901
            ops = (ops, before_ops) if mirrored else (before_ops, ops)  # noqa: PLW2901
        folded.append((rise, delta, ops))
    return folded
