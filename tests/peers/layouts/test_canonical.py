import random

import pytest

from layout.layout_small import problem_of, random_plain
from neaptide.layout.best_layout import best_layout
from neaptide.layout.problem import Buffer, LayoutProblem
from neaptide.layout.validate import check_layout
from neaptide.outcome import TerminationReason
from neaptide_peers.layouts.canonical import find_layout


@pytest.mark.parametrize("seed", range(12))
def test_it_proves_the_arena_that_the_default_proves(seed):
    problem = random_plain(random.Random(seed), 12, steps=8, size=9)
    known = best_layout(problem).require()
    assert known.certificate.is_optimal
    found = find_layout(problem)
    assert found.termination.reason is TerminationReason.OPTIMAL
    assert found.termination.best == found.termination.bound == known.arena_bytes
    check_layout(problem, found.require())
    if known.arena_bytes > known.live_bytes:
        refuted = find_layout(problem, capacity_bytes=known.arena_bytes - 1)
        assert refuted.termination.reason is TerminationReason.INFEASIBLE
    within = find_layout(problem, capacity_bytes=known.arena_bytes).require()
    check_layout(problem, within, capacity_bytes=known.arena_bytes)


def test_what_it_does_not_search_is_said():
    fixed = LayoutProblem((Buffer("a", 0, 2, 4, offset=4), Buffer("b", 1, 3, 4)))
    found = find_layout(fixed)
    check_layout(fixed, found.require())
    assert "whole rectangles" in found.termination.detail
    assert find_layout(problem_of((0, 1, 1))).termination.reason is TerminationReason.OPTIMAL
