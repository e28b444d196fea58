from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from layout_small import NINE, problem_of, random_plain
from neaptide.layout.bounds import live_bytes
from neaptide.layout.exact.skyline import dive
from neaptide.layout.exact.strip import Strip
from neaptide.layout.result import Layout
from neaptide.layout.validate import check_layout
from neaptide.outcome import LimitGuard, Limits


def strip_of(problem):
    return Strip.of(problem.starts, problem.ends, problem.sizes, int(problem.alignments[0]))


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
