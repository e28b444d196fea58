from __future__ import annotations

import random

from neaptide.outcome import LimitGuard, Limits
from neaptide.planner.offload.carried import Carried
from neaptide.planner.offload.exchanges import descend
from neaptide.planner.offload.host import HostSpace
from neaptide.schedule.evaluate import Evaluator
from planner.offload.offload_play import chain, links, recomputed


def guard():
    return LimitGuard(Limits())


def test_plans_of_offloads_alone_recompute_what_is_cheaper_so():
    """Never slower, within the budget, and what is planned is what the changed sequence says."""
    faster = 0
    for seed in range(12):
        draw = random.Random(seed)
        step = chain(draw.randint(4, 8), draw)
        evaluator = Evaluator(step)
        budget = (2 * step.lower_bound_bytes + evaluator.peak) // 3
        carried = Carried(evaluator, HostSpace(1 << 40, *links(1.0)), budget)
        if not carried.fill_until_within(guard()):
            continue
        before = carried.plan("").planned.seconds
        descend(carried, guard(), guard())
        found = carried.plan("").planned
        assert found.peak_with_workspace_bytes <= budget
        assert found.seconds <= before + 1e-9
        faster += found.seconds < before and len(found.sequence) > step.node_count
    assert faster >= 3


def test_plans_of_recomputation_alone_store_where_copies_take_no_time():
    for seed in range(6):
        draw = random.Random(seed)
        step = chain(draw.randint(4, 7), draw)
        budget = (step.lower_bound_bytes + Evaluator(step).peak) // 2
        known = recomputed(step, budget)
        carried = Carried(Evaluator(step, known.sequence), HostSpace(1 << 40, *links(1e15)), budget)
        if len(known.sequence) == step.node_count or not carried.is_within():
            continue
        descend(carried, guard(), guard())
        found = carried.plan("")
        assert found.offloads
        assert found.planned.seconds < known.seconds


def test_without_tries_nothing_changes():
    step = chain(6, random.Random(2))
    carried = Carried(Evaluator(step), HostSpace(1 << 40, *links(1.0)), (3 * Evaluator(step).peak) // 4)
    assert carried.fill_until_within(guard())
    before = carried.chosen
    descend(carried, guard(), LimitGuard(Limits(work=0)))
    assert carried.chosen == before
    assert len(carried.evaluator.order) == step.node_count
