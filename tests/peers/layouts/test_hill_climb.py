import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layout_play import from_rows, random_problem
from neaptide.layout.bounds import arena_lower_bound
from neaptide.layout.placement import Fit, place
from neaptide.layout.validate import check_layout
from neaptide.outcome import LimitGuard, Limits, TerminationReason
from neaptide_corpus.layouts import staggered
from neaptide_peers.layouts.hill_climb import _Climb, climb_layout, hill_climb
from neaptide_peers.layouts.rules import ALL_RULES as RULES


@given(st.integers(0, 10**9))
def test_the_climb_is_legal_and_not_above_where_it_starts(seed):
    problem = random_problem(seed, 60)
    start = hill_climb(problem, attempts=0).require()
    outcome = hill_climb(problem, Limits(seed=seed), attempts=40)
    check_layout(problem, outcome.require())
    assert arena_lower_bound(problem) <= outcome.require().arena_bytes <= start.arena_bytes
    assert hill_climb(problem, Limits(seed=seed), attempts=40).value == outcome.value


@given(st.integers(0, 10**9))
def test_placing_again_what_can_move_equals_placing_all(seed):
    problem = random_problem(seed, 40)
    climb = _Climb(problem, LimitGuard(Limits(seed=seed)))
    for _ in range(5):
        climb.lower = -1  # go on below any bound
        climb.run(4)
        assert tuple(climb.shelf.offsets) == place(problem, climb.order.tolist(), Fit.FIRST).offsets


def test_the_climb_improves_hard_problems():
    problem = from_rows(staggered(60, 2))
    assert climb_layout(problem).arena_bytes < RULES["size_first"](problem).arena_bytes


def test_limits_end_the_climb_with_its_best():
    problem = from_rows(staggered(60, 2))
    outcome = hill_climb(problem, Limits(work=30))
    assert outcome.termination.limit == "work"
    assert outcome.work <= 30
    check_layout(problem, outcome.require())
    stop = threading.Event()
    stop.set()
    assert hill_climb(problem, interrupt=stop).termination.reason is TerminationReason.INTERRUPTED


@pytest.mark.parametrize("work", [1, 7, 200])
def test_equal_work_gives_equal_layouts(work):
    problem = from_rows(staggered(40, 5))
    assert hill_climb(problem, Limits(work=work)).value == hill_climb(problem, Limits(work=work)).value
