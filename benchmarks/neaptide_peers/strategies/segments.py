"""Segments of a chain of blocks, each recomputed as a whole, as a retention table."""

from __future__ import annotations

from collections.abc import Sequence

from neaptide.planner.recompute.chain.blocks import BlockChain
from neaptide.planner.recompute.chain.plans import BackwardPart, parts_of


def segments_table(chain: BlockChain, starts: Sequence[int]) -> list[BackwardPart]:
    """The table of Chen et al. 2016: what enters a segment is held, the segment is recomputed as a whole.

    Args:
        chain: the blocks.
        starts: first blocks of the segments, ascending, the first of them 0. The last segment is never dropped.
    """
    count = len(chain.blocks)
    held: list[set[int]] = [set() for _ in range(count)]
    for index, start in enumerate(starts):
        end = starts[index + 1] if index + 1 < len(starts) else count
        for phase in range(start, count):
            held[phase].update(chain.blocks[start].entering)
        if end < count:
            # It is there when the segment before it has its turn, and its last block may read it.
            held[end - 1].update(chain.blocks[end].entering)
        for block in chain.blocks[start:end]:
            # Held into the backward of the last block of the segment only where it was never dropped.
            for phase in range(start, end if end == count else end - 1):
                held[phase].update(block.reads, block.leaving)
    return parts_of(chain, held)
