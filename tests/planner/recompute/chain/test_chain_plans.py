from __future__ import annotations

from chain_play import chain_step
from neaptide.planner.recompute.chain.blocks import find_blocks
from neaptide.planner.recompute.chain.options import chain_costs
from neaptide.planner.recompute.chain.plans import table_of
from neaptide.planner.recompute.chain.program import Hold
from neaptide.planner.recompute.units import forward_units


def test_holds_become_what_the_phases_find():
    step = chain_step(4)
    chain = find_blocks(forward_units(step, range(step.node_count)), 16)
    costs = chain_costs(step, chain)
    table = table_of(chain, costs, [Hold(2, None, 3, 2), Hold(3, 0, 3, 3)])
    # Phases run from the last block to the first.
    assert [phase.first for phase in table] == sorted(phase.first for phase in table)
    assert table[0].held >= {1}
    assert table[1].held == {1}
    assert table[2].held == table[3].held == frozenset()
