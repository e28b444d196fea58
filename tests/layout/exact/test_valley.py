"""The complete searches over strips: fits and refuted mean what they say."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layout_small import NINE, problem_of, random_plain, smallest_arena_by_order
from neaptide.layout.exact.restarts import decide, order_by
from neaptide.layout.exact.strip import Strip, Verdict
from neaptide.layout.exact.valley import SectionRule, ValleySearch
from neaptide.layout.problem import LayoutProblem
from neaptide.layout.result import Layout
from neaptide.layout.validate import check_layout
from neaptide.outcome import LimitGuard, Limits
from neaptide_peers.layouts.canonical import CanonicalSearch


def strip_of(problem: LayoutProblem) -> Strip:
    return Strip.of(problem.starts, problem.ends, problem.sizes, int(problem.alignments[0]))


def check_offsets(problem: LayoutProblem, strip: Strip, offsets, capacity: int) -> None:
    layout = Layout.of(problem, tuple(offset * strip.unit for offset in offsets))
    check_layout(problem, layout, capacity_bytes=capacity)


@given(st.integers(0, 10**9), st.sampled_from([1, 2, 4]), st.sampled_from(list(SectionRule)))
def test_searches_agree_with_every_order(seed, alignment, rule):
    problem = random_plain(random.Random(seed), 6, size=9, alignment=alignment)
    smallest = smallest_arena_by_order(problem)
    strip = strip_of(problem)
    for capacity in (smallest - 1, smallest, smallest + 3):
        limits = strip.limits(capacity)
        valley = ValleySearch(
            strip, limits, order_by(strip, limits, [1.0] * len(strip)), rule, [0] * strip.sections
        )
        decisions = [
            valley.run(LimitGuard(Limits())),
            decide(strip, limits, LimitGuard(Limits()), seed=seed),
            CanonicalSearch(strip, limits).decide(LimitGuard(Limits())),
        ]
        expected = Verdict.FITS if capacity >= smallest else Verdict.REFUTED
        assert [decision.verdict for decision in decisions] == [expected] * 3
        for decision in decisions:
            if decision.offsets is not None:
                check_offsets(problem, strip, decision.offsets, capacity)


def test_nine_buffers_with_live_bytes_8_need_9():
    strip = strip_of(problem_of(*NINE))
    for capacity, verdict in ((8, Verdict.REFUTED), (9, Verdict.FITS)):
        limits = strip.limits(capacity)
        assert decide(strip, limits, LimitGuard(Limits())).verdict is verdict
        assert CanonicalSearch(strip, limits).decide(LimitGuard(Limits())).verdict is verdict


@pytest.mark.parametrize("solve", [decide, lambda s, c, g: CanonicalSearch(s, c).decide(g)])
def test_running_out_of_work_is_not_a_proof(solve):
    strip = strip_of(problem_of(*NINE))
    decision = solve(strip, strip.limits(8), LimitGuard(Limits(work=3)))
    assert decision.verdict is Verdict.OUT_OF_BUDGET
    assert decision.offsets is None


def cut(
    rng: random.Random, start: int, end: int, low: int, high: int, depth: int
) -> list[tuple[int, int, int]]:
    """Guillotine cuts of a full rectangle."""
    if depth == 0 or (end - start < 2 and high - low < 2):
        return [(start, end, high - low)]
    if end - start >= 2 and (high - low < 2 or rng.random() < 0.5):
        at = rng.randrange(start + 1, end)
        return cut(rng, start, at, low, high, depth - 1) + cut(rng, at, end, low, high, depth - 1)
    at = rng.randrange(low + 1, high)
    return cut(rng, start, end, low, at, depth - 1) + cut(rng, start, end, at, high, depth - 1)


@given(st.integers(0, 10**9))
def test_perfect_packings_fit_exactly(seed):
    rng = random.Random(seed)
    rows = cut(rng, 0, 20, 0, 40, 4)
    rng.shuffle(rows)
    problem = problem_of(*rows)
    strip = strip_of(problem)
    found = decide(strip, strip.limits(40), LimitGuard(Limits(work=50_000)), seed=seed)
    assert found.offsets is not None
    check_offsets(problem, strip, found.offsets, 40)
    smaller = decide(strip, strip.limits(39), LimitGuard(Limits(work=50_000)))
    assert smaller.verdict is Verdict.REFUTED
