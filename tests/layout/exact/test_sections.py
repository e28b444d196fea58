from __future__ import annotations

import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from layout_small import random_plain, random_rich
from neaptide.layout.exact.sections import clique_sections, part_sections
from neaptide.layout.problem import Buffer, Gap, LayoutProblem


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
