"""From a solved chain to retention tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from neaptide.planner.recompute.chain.blocks import BlockChain
from neaptide.planner.recompute.chain.program import ChainCosts, Hold
from neaptide.planner.recompute.retention import Phase


def table_of(chain: BlockChain, costs: ChainCosts, holds: Iterable[Hold]) -> list[Phase]:
    """The retention table of a plan, one phase a block, in running order."""
    held: list[set[int]] = [set() for _ in chain.blocks]
    for hold in holds:
        block = chain.blocks[hold.block]
        if hold.option is None:
            units = set(block.entering)
        else:
            units = {*costs.options[hold.block][hold.option].kept, *block.leaving}
        for phase in range(hold.last, hold.first + 1):
            held[phase] |= units
    return phases_of(chain, held)


def phases_of(chain: BlockChain, held: Sequence[Iterable[int]]) -> list[Phase]:
    """The retention table with some units held into the backward of each block."""
    together = zip(chain.blocks, held, strict=True)
    return [Phase(block.first, block.end, frozenset(units)) for block, units in reversed(list(together))]
