"""How many bytes PyTorch's CUDA caching allocator reserves for a program, not only allocates: a simulation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from neaptide.errors import LayoutProblemError
from neaptide.layout.pools.allocation_events import BlockEvent, problem_events
from neaptide.layout.pools.device_allocator import AllocatorBytes, AllocatorSettings, CachingAllocator
from neaptide.layout.problem import LayoutProblem


@dataclass(frozen=True, slots=True)
class AllocatorRun:
    """What a stream of events did to the allocator.

    Attributes:
        reserved_peak_bytes: most bytes in segments.
        allocated_peak_bytes: most bytes in blocks in use.
        requested_peak_bytes: most bytes in use as asked for: live bytes.
        segments: segments at the end; an expandable one counts once.
        segments_made: segments ever taken from the device.
        retries: how often all unused segments had to be given back to the device (`num_alloc_retries`).
        failed_at: index of the event that the device had no room for, after which nothing was done; None if all went
            well.
        timeline: the counters after each event.
    """

    reserved_peak_bytes: int
    allocated_peak_bytes: int
    requested_peak_bytes: int
    segments: int
    segments_made: int
    retries: int
    failed_at: int | None
    timeline: tuple[AllocatorBytes, ...]

    @property
    def fragmentation(self) -> float:
        """How far the reserved peak is above the requested one, as a fraction of the latter."""
        if not self.requested_peak_bytes:
            return 0.0
        return self.reserved_peak_bytes / self.requested_peak_bytes - 1


def simulate_caching_allocator(
    events: Iterable[BlockEvent], settings: AllocatorSettings | None = None
) -> AllocatorRun:
    """Run the allocator from empty over a stream of events. O(n) steps, each with a bisection of the free blocks.

    Events of several steps of a program may follow one another: segments stay, as they do on a device.

    Raises:
        LayoutProblemError: a block is freed that is not there, or allocated twice, or has fewer than 0 bytes.
    """
    allocator = CachingAllocator(settings or AllocatorSettings())
    timeline: list[AllocatorBytes] = []
    failed_at: int | None = None
    for index, event in enumerate(events):
        if event.nbytes < 0:
            raise LayoutProblemError(f"block {event.block} has {event.nbytes} bytes")
        if event.nbytes == 0:
            allocator.free(event.block)
        elif not allocator.allocate(event.block, event.nbytes):
            failed_at = index
            break
        timeline.append(allocator.bytes)
    return AllocatorRun(
        max((now.reserved for now in timeline), default=0),
        max((now.allocated for now in timeline), default=0),
        max((now.requested for now in timeline), default=0),
        allocator.segments,
        allocator.segments_made,
        allocator.retries,
        failed_at,
        tuple(timeline),
    )


def caching_allocator_reserved(problem: LayoutProblem, settings: AllocatorSettings | None = None) -> int:
    """Most bytes that PyTorch's caching allocator reserves for the buffers of a problem: the row beside an arena.

    Raises:
        LayoutProblemError: they do not fit the capacity of the settings.
    """
    run = simulate_caching_allocator(problem_events(problem), settings)
    if run.failed_at is not None:
        raise LayoutProblemError("the caching allocator runs out of memory on this problem")
    return run.reserved_peak_bytes
