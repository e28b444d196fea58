"""Climbing profiles in a heap: Liu's rule without sorting anew for every op of a tree."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from neaptide.schedule.order.regions.segments import Rope, Segment


def peak_rise(segments: Iterable[Segment]) -> int:
    """Highest bytes above the start while the segments run in order; 0 for none."""
    level = peak = 0
    for segment in segments:
        peak = max(peak, level + segment.rise)
        level += segment.delta
    return peak


class UpHeap:
    """Segments of profiles that only climb, kept so that two heaps join cheaply and the last segment is at hand.

    Liu's rule runs segments by decreasing height of the hill above the valley after it, so the segment that runs
    last is the smallest in that key: a heap of the smaller side poured into the larger joins n segments in
    O(n log^2 n) altogether.
    """

    __slots__ = ("_heap", "_serial", "level")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int, Rope]] = []  # key, serial (ties, downwards), delta, ops
        self._serial = 0
        self.level = 0

    def __len__(self) -> int:
        return len(self._heap)

    def absorb(self, other: UpHeap) -> UpHeap:
        """Both as one; neither may be used on its own afterwards."""
        large, small = (self, other) if len(self) >= len(other) else (other, self)
        large.take(small.drain())
        return large

    def take(self, segments: Iterable[Segment]) -> None:
        """Run segments of an independent climbing profile too, wherever Liu's rule puts each."""
        for rise, delta, ops in segments:
            heapq.heappush(self._heap, (rise - delta, self._next_serial(), delta, ops))
            self.level += delta

    def append(self, rise: int, delta: int, ops: Rope) -> None:
        """Run a segment after all others; it swallows those that it leaves without effect.

        `level + delta` must not be negative: no valley lies below the start.
        """
        start, hill, valley = self.level, self.level + rise, self.level + delta
        parts: list[Rope] = [ops]
        while self._heap:
            key, _, before_delta, before_ops = self._heap[0]
            before_hill = start + key
            if before_hill > hill and start < valley:
                break
            heapq.heappop(self._heap)
            parts.append(before_ops)
            hill = max(hill, before_hill)
            start -= before_delta
        joined: Rope = tuple(reversed(parts)) if len(parts) > 1 else ops
        heapq.heappush(self._heap, (hill - valley, self._next_serial(), valley - start, joined))
        self.level = valley

    def drain(self) -> list[Segment]:
        """All segments in running order; the heap is empty afterwards."""
        found: list[Segment] = []
        while self._heap:
            key, _, delta, ops = heapq.heappop(self._heap)
            found.append(Segment(key + delta, delta, ops))
        found.reverse()
        self.level = 0
        return found

    def _next_serial(self) -> int:
        self._serial -= 1
        return self._serial
