from __future__ import annotations

import random

import pytest

from neaptide.planner.offload.gap_table import GapTable
from neaptide.planner.offload.host import HostSpace
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.replays import Replays
from planner.offload.offload_play import chain, links


def changed(evaluator, draw):
    """Make a repetition, or take the last change back; whether the sequence is another one."""
    problem = evaluator.problem
    replays = Replays(evaluator)
    storage = draw.randrange(len(problem.storage_bytes))
    before = draw.randint(0, problem.node_count)
    if problem.is_persistent[storage] or not 0 <= problem.creator[storage] < before:
        return False
    closure = replays.closure(storage, before)
    if not closure.nodes or closure.refusal:
        return False
    evaluator.apply(replays.insertion(closure, before))
    return True


@pytest.mark.parametrize("closed_from", [None, 5])
def test_a_table_follows_a_sequence_through_changes_and_back(closed_from):
    """Always the gaps that are found anew, in the same order."""
    applied = undone = 0
    for seed in range(8):
        draw = random.Random(seed)
        step = chain(6, draw)
        evaluator = Evaluator(step)
        host = HostSpace(1 << 40, *links(1.0), borders=(3,) if seed % 2 else (), closed_from=closed_from)
        table, met = GapTable(evaluator, host), set()
        for _ in range(12):
            if applied > undone and draw.random() < 0.4:
                evaluator.undo()
                undone += 1
            elif changed(evaluator, draw):
                applied += 1
            fresh = GapTable(evaluator, host).all()
            met.update(gap.key for gap in fresh)
            assert {key for key in met if table.has(key)} == {gap.key for gap in fresh}
            assert table.among(gap.key for gap in fresh) == fresh
            assert [gap for s in table.movable for gap in table.of(s)] == sorted(
                fresh, key=lambda gap: (gap.storage, gap.occurrence, gap.start)
            )
            kept = [gap.key for gap in fresh[::3]]
            first, last = sorted(draw.randrange(len(evaluator.order)) for _ in range(2))
            rows, start, end, nbytes = table.across(first, last, kept)
            wanted = [g for g in fresh if g.start < last and g.end > first and g.key not in kept]
            assert table.gaps(rows.tolist()) == wanted
            assert [(g.start, g.end, g.nbytes) for g in wanted] == list(zip(start, end, nbytes, strict=True))
        undone = applied
    assert applied >= 10
