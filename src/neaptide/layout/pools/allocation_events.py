"""Blocks that begin and end, one after another: what an allocator sees of a layout problem or of a recorded run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from neaptide.errors import LayoutProblemError
from neaptide.layout.problem import LayoutProblem


@dataclass(frozen=True, slots=True)
class BlockEvent:
    """A block is allocated or freed.

    Attributes:
        block: its number; free again after its end.
        nbytes: as requested; 0 where it is freed.
    """

    block: int
    nbytes: int


def problem_events(problem: LayoutProblem) -> Iterator[BlockEvent]:
    """What a program with these lifetimes asks of an allocator. O(n log n).

    At every step what ends there is freed first, then what starts there is allocated, as listed: inputs and outputs
    of an operation are live together since an input ends one step later. Offsets, alignments and gaps play no part.
    """
    changes = [(buffer.end, False, index) for index, buffer in enumerate(problem.buffers)]
    changes += [(buffer.start, True, index) for index, buffer in enumerate(problem.buffers)]
    for _, begins, index in sorted(changes):
        yield BlockEvent(index, problem.buffers[index].nbytes if begins else 0)


def recorded_events(changes: Iterable[tuple[int, int]]) -> Iterator[BlockEvent]:
    """What a recorded run asked of an allocator.

    Args:
        changes: pairs (address, bytes) in order of time, bytes negative where the block ends, such as the fields
            `address` and `signed_bytes` of `cost.allocator_events.AllocatorEvent`. Ends of blocks that began before
            the recording are left out, and so are blocks without bytes.

    Raises:
        LayoutProblemError: a block begins where another one still is.
    """
    live: set[int] = set()
    for address, signed_bytes in changes:
        if signed_bytes > 0:
            if address in live:
                raise LayoutProblemError(f"the recording has two blocks at the address {address} at a time")
            live.add(address)
            yield BlockEvent(address, signed_bytes)
        elif signed_bytes < 0 and address in live:
            live.remove(address)
            yield BlockEvent(address, 0)
