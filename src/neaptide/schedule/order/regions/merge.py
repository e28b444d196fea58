"""Independent profiles run side by side: the order of their segments that dominates every other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from neaptide.schedule.order.regions.segments import Segment, canonical


def merge_independent(profiles: Iterable[Sequence[Segment]]) -> list[Segment]:
    """Interleave canonical profiles that share no bytes and no dependency.

    First all segments that go down, those with the smallest rise first; then all that go up, those first whose hill
    stands highest above the valley behind it. The result is canonical and dominates every interleaving.
    O(n log n). Two-sided form of the rule of Liu (1987).

    Args:
        profiles: canonical each (`segments.canonical`); others give a legal order without the guarantee.
    """
    down: list[Segment] = []
    up: list[Segment] = []
    for segments in profiles:
        for segment in segments:
            (up if segment.delta > 0 else down).append(segment)
    down.sort(key=_rise)
    up.sort(
        key=_fall, reverse=True
    )  # a reversed sort is stable too: segments of one profile keep their order
    return canonical(down + up)


def _rise(segment: Segment) -> int:
    return segment.rise


def _fall(segment: Segment) -> int:
    return segment.rise - segment.delta
