from __future__ import annotations

from chain_play import chain_step
from neaptide.outcome import LimitGuard, Limits
from neaptide.planner.objective import PlanningProblem
from neaptide.planner.recompute.chain.blocks import find_blocks
from neaptide.planner.recompute.chain.plans import carry_out
from neaptide.planner.recompute.units import forward_units
from neaptide_peers.strategies.segments import segments_table


def chain_of_step(length):
    step = chain_step(length)
    return step, find_blocks(forward_units(step, range(step.node_count)), 4 * length)


def carried(step, chain, table):
    return carry_out(PlanningProblem(step, 0), chain.forward, table, LimitGuard(Limits()), "test").sequence


def test_segments_are_made_again_as_a_whole_from_what_enters_them():
    step, chain = chain_of_step(6)
    assert len(chain.blocks) == 6
    # Blocks 0 to 2 and 3 to 5; what enters block 3 is held, and the last segment is never dropped.
    sequence = carried(step, chain, segments_table(chain, (0, 3)))
    assert sequence == (0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 1, 9, 10, 11)


def test_one_segment_repeats_nothing():
    step, chain = chain_of_step(5)
    assert carried(step, chain, segments_table(chain, (0,))) == tuple(range(10))
