"""What the caching allocator of a card makes of a planned program: it hands out blocks, which may be larger than what was asked for.

Requests are rounded up to 512 bytes, and of a block that is up to 1 MiB too large the rest stays with it. Blocks, not requests, are
what `torch.cuda.max_memory_allocated` counts, and a card runs out of.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from neaptide.ir.graph import Graph
from neaptide.ir.schedule import Schedule
from neaptide.layout.caching_allocator import (
    AllocatorBytes,
    BlockEvent,
    problem_events,
    simulate_caching_allocator,
)
from neaptide.layout.from_schedule import PERSISTENT, RESULTS, schedule_buffers
from neaptide.plans import AssumedBytes


def allocator_peaks(
    graph: Graph, schedule: Schedule, assumed: AssumedBytes, kept: Sequence[int]
) -> AllocatorBytes:
    """The most of each counter of the allocator in a step, from an empty allocator on. O(n log n).

    Args:
        assumed: what is known of scratch and sizes.
        kept: bytes of blocks that libraries keep, allocated before everything else.

    Raises:
        LayoutProblemError: storages go to the host and back, and the simulation knows nothing of it.
    """
    inside = schedule_buffers(
        graph,
        schedule,
        storage_bytes=dict(assumed.storages),
        workspace=dict(assumed.workspace),
        inside=(PERSISTENT, RESULTS),
    )

    def events() -> Iterator[BlockEvent]:
        yield from (BlockEvent(-1 - number, nbytes) for number, nbytes in enumerate(kept))
        yield from problem_events(inside.problem)

    return AllocatorBytes(*map(max, zip(*simulate_caching_allocator(events()), strict=True)))
