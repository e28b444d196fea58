"""Fixed offsets, mixed alignments and gaps against every offset of every buffer."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layout_small import fits_by_offsets, random_rich, smallest_arena_by_offsets
from neaptide.layout.exact.rigid import RigidSearch
from neaptide.layout.exact.strip import Verdict
from neaptide.layout.problem import Buffer, Gap, LayoutProblem
from neaptide.layout.result import Layout
from neaptide.layout.validate import check_layout
from neaptide.outcome import LimitGuard, Limits

KINDS = {
    "alignments": {"fixed": False, "gaps": False},
    "fixed": {"gaps": False, "alignments": (1,)},
    "gaps": {"fixed": False, "alignments": (1,)},
    "all": {},
}


@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 10**9))
def test_optimum_is_that_of_every_offset(kind, seed):
    problem = random_rich(random.Random(seed), 5, **KINDS[kind])
    smallest = smallest_arena_by_offsets(problem)
    search = RigidSearch(problem)
    found = search.decide(smallest, LimitGuard(Limits()), seed=seed)
    assert found.offsets is not None
    check_layout(problem, Layout.of(problem, found.offsets), capacity_bytes=smallest)
    assert search.decide(smallest - 1, LimitGuard(Limits())).verdict is Verdict.REFUTED


def test_interlocking_buffers_lie_below_and_above_each_other():
    # a is below b at one step and above it at another: no order of whole buffers describes that.
    a = Buffer("a", 0, 2, 10, gaps=(Gap(0, 1, (0, 1)), Gap(1, 2, (9, 10))))
    b = Buffer("b", 0, 2, 10, gaps=(Gap(0, 2, (5, 6)),))
    problem = LayoutProblem((a, b))
    assert fits_by_offsets(problem, 10)
    found = RigidSearch(problem).decide(10, LimitGuard(Limits()))
    assert found.offsets == (0, 0)


def test_running_out_of_work_is_not_a_proof():
    problem = LayoutProblem((Buffer("a", 0, 2, 3, 2), Buffer("b", 1, 3, 3, 4), Buffer("c", 0, 3, 1)))
    assert RigidSearch(problem).decide(7, LimitGuard(Limits(work=1))).verdict is Verdict.OUT_OF_BUDGET
