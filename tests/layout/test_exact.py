"""The searches that decide an arena: sections of time, dives, the valley search, and the rigid search."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layout.layout_small import (
    NINE,
    fits_by_offsets,
    problem_of,
    random_plain,
    random_rich,
    smallest_arena_by_offsets,
    smallest_arena_by_order,
)
from neaptide.layout.bounds import live_bytes
from neaptide.layout.exact.restarts import decide, order_by
from neaptide.layout.exact.rigid import RigidSearch
from neaptide.layout.exact.sections import clique_sections, part_sections
from neaptide.layout.exact.skyline import dive
from neaptide.layout.exact.strip import Strip, Verdict
from neaptide.layout.exact.valley import SectionRule, ValleySearch
from neaptide.layout.problem import Buffer, Gap, LayoutProblem
from neaptide.layout.result import Layout
from neaptide.layout.validate import check_layout
from neaptide.outcome import LimitGuard, Limits
from neaptide_peers.layouts.canonical import CanonicalSearch


@given(st.integers(0, 10**9))
def test_lifetimes_meet_on_sections_exactly_when_they_meet_in_time(seed):
    problem = random_plain(random.Random(seed), 12, steps=15)
    sections = clique_sections(problem.starts, problem.ends)
    assert (sections.firsts < sections.lasts).all()
    assert sections.lasts.max() == sections.count <= len(problem)
    for a in range(len(problem)):
        for b in range(len(problem)):
            in_time = problem.starts[a] < problem.ends[b] and problem.starts[b] < problem.ends[a]
            on_sections = sections.firsts[a] < sections.lasts[b] and sections.firsts[b] < sections.lasts[a]
            assert in_time == on_sections


@given(st.integers(0, 10**9))
def test_no_section_holds_only_what_another_holds(seed):
    problem = random_plain(random.Random(seed), 10, steps=12)
    sections = clique_sections(problem.starts, problem.ends)
    held = [
        frozenset(np.flatnonzero((sections.firsts <= s) & (s < sections.lasts)).tolist())
        for s in range(sections.count)
    ]
    assert not any(a < b for a in held for b in held)


def test_cuts_and_totals():
    sections = clique_sections(np.array([0, 1, 4, 5]), np.array([2, 3, 6, 6]))
    assert sections.count == 2
    assert sections.cuts().tolist() == [0, 1]
    assert sections.totals(np.array([1, 2, 4, 8])).tolist() == [3, 12]


def test_parts_of_a_buffer_with_gaps():
    problem = LayoutProblem((Buffer("a", 0, 4, 5, gaps=(Gap(1, 2, (1, 3)),)), Buffer("b", 1, 2, 1)))
    parts = part_sections(problem)
    assert parts.buffers.tolist() == [0, 0, 0, 1]
    assert parts.lows.tolist() == [0, 1, 0, 0]
    assert parts.highs.tolist() == [5, 3, 5, 1]
    assert parts.sections.firsts.tolist() == [0, 1, 2, 1]


@given(st.integers(0, 10**9))
def test_parts_cover_what_their_buffers_use(seed):
    problem = random_rich(random.Random(seed), 6)
    parts = part_sections(problem)
    assert len(parts.buffers) == sum(len(buffer.parts()) for buffer in problem.buffers)


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


@given(st.integers(0, 10**9), st.sampled_from([1, 64]))
def test_every_dive_is_a_layout(seed, alignment):
    problem = random_plain(random.Random(seed), 200, steps=60, size=500, alignment=alignment)
    strip = strip_of(problem)
    found = dive(strip, 0, LimitGuard(Limits()), seed=seed, dives=6)
    layout = Layout.of(problem, tuple(offset * strip.unit for offset in found.offsets))
    check_layout(problem, layout)
    assert layout.arena_bytes == found.arena_bytes
    assert found.placed == 6 * len(problem)


def test_ends_at_the_aim():
    strip = strip_of(problem_of(*NINE))
    assert dive(strip, 12, LimitGuard(Limits()), dives=50).placed == len(NINE)


def test_stops_with_the_guard():
    strip = strip_of(problem_of(*NINE))
    assert dive(strip, 0, LimitGuard(Limits(work=4))).offsets is None
    assert dive(strip, 0, LimitGuard(Limits(work=11))).offsets is not None


def test_a_training_step_reaches_its_live_bytes():
    rng = random.Random(3)
    depth = 400
    rows = [(2 * i, 4 * depth - 2 * i + 1, rng.randrange(1, 999)) for i in range(depth)]
    rows += [(t, t + rng.randrange(1, 4), rng.randrange(1, 999)) for t in range(0, 4 * depth, 3)]
    problem = problem_of(*rows)
    found = dive(strip_of(problem), live_bytes(problem), LimitGuard(Limits()))
    assert found.arena_bytes == live_bytes(problem)


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


def test_the_rigid_search_proves_nothing_without_work():
    problem = LayoutProblem((Buffer("a", 0, 2, 3, 2), Buffer("b", 1, 3, 3, 4), Buffer("c", 0, 3, 1)))
    assert RigidSearch(problem).decide(7, LimitGuard(Limits(work=1))).verdict is Verdict.OUT_OF_BUDGET
