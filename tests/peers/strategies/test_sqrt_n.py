from __future__ import annotations

import math
from itertools import pairwise

import pytest

from chain_play import chain_step
from neaptide.outcome import Limits
from neaptide.planner.objective import PlanningProblem
from neaptide.planner.recompute.chain.blocks import find_blocks
from neaptide.planner.recompute.units import forward_units
from neaptide.planner.strategies import program_order
from neaptide_peers.strategies import sqrt_n


@pytest.mark.parametrize("length", [16, 36, 81, 144])
def test_memory_is_of_the_order_of_the_root_for_one_more_forward(length):
    step = chain_step(length)
    assert program_order.baseline(step).peak_bytes >= 100 * length
    # Nothing fits into one unit, so the least memory counts.
    found = sqrt_n.solve(PlanningProblem(step, 101), Limits()).require()
    assert found.peak_bytes <= 100 * (2 * math.isqrt(length) + 3)
    assert len(found.sequence) - step.node_count < length


def test_of_the_numbers_of_segments_that_fit_the_fastest_counts():
    step = chain_step(36)
    overheads = []
    for units in (14, 18, 24, 34):
        found = sqrt_n.solve(PlanningProblem(step, 100 * units), Limits()).require()
        assert found.peak_bytes <= 100 * units
        overheads.append(found.seconds)
    assert overheads == sorted(overheads, reverse=True)
    assert overheads[-1] < overheads[0]


def test_segments_begin_at_the_first_block_and_are_tried_once():
    step = chain_step(100)
    chain = find_blocks(forward_units(step, range(200)), 200)
    tried = list(sqrt_n.segmentations(chain))
    assert len(tried) == len(set(tried))
    assert all(starts[0] == 0 and len(starts) > 1 for starts in tried)
    assert all(a < b for starts in tried for a, b in pairwise(starts))
    assert len(tried) <= 24
