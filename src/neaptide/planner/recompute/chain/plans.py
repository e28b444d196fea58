"""From a solved chain to retention tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from neaptide.planner.recompute.chain.blocks import BlockChain
from neaptide.planner.recompute.chain.program import ChainCosts, Hold
from neaptide.planner.recompute.retention import BackwardPart


def table_of(chain: BlockChain, costs: ChainCosts, holds: Iterable[Hold]) -> list[BackwardPart]:
    """The retention table of a plan, one part of the backward a block, in running order."""
    held: list[set[int]] = [set() for _ in chain.blocks]
    for hold in holds:
        block = chain.blocks[hold.block]
        if hold.option is None:
            units = set(block.entering)
        else:
            units = {*costs.options[hold.block][hold.option].kept, *block.leaving}
        for part in range(hold.last, hold.first + 1):
            held[part] |= units
    return parts_of(chain, held)


def parts_of(chain: BlockChain, held: Sequence[Iterable[int]]) -> list[BackwardPart]:
    """The retention table with some units held into the backward of each block."""
    together = zip(chain.blocks, held, strict=True)
    return [
        BackwardPart(block.first, block.end, frozenset(units)) for block, units in reversed(list(together))
    ]
