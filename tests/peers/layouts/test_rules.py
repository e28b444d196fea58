"""Placement rules of others: orders, fits, shared objects, and the hill climb."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layout.layout_play import from_rows, random_problem, renumbered
from layout.layout_small import problem_of
from neaptide.layout.bounds import arena_lower_bound, live_bytes
from neaptide.layout.placement import (
    Fit,
    RuleStopped,
    by_life,
    by_size,
    order_by,
    place,
    program_order,
    watched,
)
from neaptide.layout.problem import Buffer, LayoutProblem
from neaptide.layout.validate import check_layout
from neaptide.outcome import LimitGuard, Limits
from neaptide_corpus.layouts import equal_sizes, nested, staggered, training_shaped
from neaptide_peers.layouts.end_to_end import lay_end_to_end
from neaptide_peers.layouts.hill_climb import _Climb, climb_layout, hill_climb
from neaptide_peers.layouts.orders import ORDERS, BufferKeys
from neaptide_peers.layouts.rules import ALL_RULES as RULES
from neaptide_peers.layouts.shared_objects import place_breadth_objects, place_executorch

SEEDS = st.integers(0, 10**9)


@given(SEEDS)
def test_keys_are_those_counted_step_by_step(seed):
    problem = random_problem(seed, 25, gaps=False)
    keys = BufferKeys.of(problem)
    buffers = problem.buffers
    live = {
        t: frozenset(i for i, b in enumerate(buffers) if b.start <= t < b.end)
        for t in range(max(b.end for b in buffers))
    }
    nbytes = {t: sum(buffers[i].nbytes for i in live) for t, live in live.items()}
    maximal = {a for a in live.values() if not any(a < other for other in live.values())}
    for i, b in enumerate(buffers):
        life = range(b.start, b.end)
        assert keys.overlaps[i] == len(frozenset().union(*(live[t] for t in life))) - 1
        assert keys.contention[i] == max(nbytes[t] for t in life)
        assert keys.sections[i] == sum(i in live for live in maximal)
    by_area = sorted(range(len(buffers)), key=lambda i: keys.areas[i])
    areas = [buffers[i].nbytes * (buffers[i].end - buffers[i].start) for i in by_area]
    assert areas == sorted(areas)


@given(SEEDS)
def test_orders_do_not_depend_on_numbering(seed):
    problem = random_problem(seed, 25, gaps=False, fixed=False)
    other = renumbered(problem, seed)
    keys, other_keys = BufferKeys.of(problem), BufferKeys.of(other)
    for columns in ORDERS.values():
        rows = [
            [
                (b.start, b.end, b.nbytes, b.alignment)
                for b in map(p.buffers.__getitem__, order_by(p, *columns(k)))
            ]
            for p, k in ((problem, keys), (other, other_keys))
        ]
        assert rows[0] == rows[1]


def test_areas_beyond_64_bits_are_compared_exactly():
    large = 1 << 60
    problem = LayoutProblem(
        (Buffer("a", 0, large, large - 1), Buffer("b", 0, large, large), Buffer("c", 0, 9, 1))
    )
    keys = BufferKeys.of(problem)
    assert order_by(problem, *ORDERS["area"](keys)) == [1, 0, 2]


def test_program_order_is_by_start_and_then_as_listed():
    problem = LayoutProblem((Buffer("a", 5, 6, 1), Buffer("b", 0, 2, 9), Buffer("c", 0, 7, 5)))
    assert program_order(problem) == [1, 2, 0]
    assert program_order(problem, -problem.sizes) == [1, 2, 0]


def test_breadth_goes_through_steps_by_bytes_live():
    problem = LayoutProblem(
        (Buffer("a", 0, 1, 10), Buffer("b", 1, 2, 6), Buffer("c", 1, 2, 7), Buffer("d", 2, 3, 11))
    )
    keys = BufferKeys.of(problem)
    assert order_by(problem, *ORDERS["breadth"](keys)) == [2, 1, 3, 0]


@given(SEEDS)
def test_orders_of_the_default_are_those_of_the_grid(seed):
    problem = random_problem(seed, 25)
    keys = BufferKeys.of(problem)
    assert by_size(problem) == order_by(problem, *ORDERS["size"](keys))
    assert by_life(problem) == order_by(problem, *ORDERS["life"](keys))


def test_first_fit_in_program_order_wastes_what_other_orders_do_not():
    problem = problem_of((0, 1, 1), (0, 2, 1), (1, 2, 2))
    assert live_bytes(problem) == 3
    assert RULES["first_fit"](problem).offsets == (0, 1, 2)
    assert RULES["life_first"](problem).arena_bytes == 3


@given(SEEDS)
def test_equal_sizes_by_start_need_no_more_than_live_bytes(seed):
    problem = from_rows(equal_sizes(60, seed))
    for name in ("start_first", "start_best", "first_fit", "ort", "tags"):
        assert RULES[name](problem).arena_bytes == live_bytes(problem), name


@given(SEEDS)
def test_nested_lives_by_start_need_no_more_than_live_bytes(seed):
    problem = from_rows(nested(60, seed))
    assert RULES["life_first"](problem).arena_bytes == live_bytes(problem)


def test_training_steps_are_close_to_the_bound_by_size():
    for seed in range(3):
        problem = from_rows(training_shaped(400, seed, alignment=64))
        assert RULES["size_first"](problem).arena_bytes <= 1.05 * arena_lower_bound(problem)
        assert RULES["xla"](problem).arena_bytes <= RULES["size_best"](problem).arena_bytes


def test_tflite_puts_what_lives_all_the_time_at_the_bottom():
    problem = problem_of((0, 4, 9), (0, 9, 1), (4, 9, 5))
    assert RULES["tflite"](problem).offsets == (1, 0, 1)
    assert RULES["tflm"](problem).offsets == (0, 9, 0)


def test_tvm_never_uses_a_hole():
    # By size: a, b on top of it, c on top of b; below c there is room while a is gone.
    problem = problem_of((0, 2, 5), (1, 4, 4), (3, 4, 3))
    assert RULES["tvm_size"](problem).offsets == (0, 5, 9)
    assert RULES["size_first"](problem).offsets == (0, 5, 0)


def test_what_was_given_before_the_end_was_given():
    interrupt = threading.Event()
    items = watched(range(5), LimitGuard(Limits(), interrupt))
    assert [next(items), next(items)] == [0, 1]
    interrupt.set()
    with pytest.raises(RuleStopped):
        next(items)


def test_executorch_takes_the_closest_free_object_else_room_inside_one():
    # Two objects, of 10 and 6; then one for the first alone in time, one on top of it, one that needs a third.
    problem = problem_of((0, 4, 10), (0, 2, 6), (2, 4, 5), (2, 4, 3), (5, 6, 2))
    layout = place_executorch(problem)
    # b2 shares with b1. b3 meets b0 and b2: no room inside either. b4 is alone: the smallest object.
    assert layout.offsets == (0, 10, 10, 16, 16)
    inside = problem_of((0, 2, 10), (4, 6, 4), (4, 6, 3), (4, 6, 3))
    assert place_executorch(inside).offsets == (0, 0, 4, 7)


def test_breadth_grows_the_largest_free_object_when_none_is_large_enough():
    # Step 1 is the broadest; the single buffer of step 3 is larger than any object.
    problem = problem_of((1, 2, 6), (1, 2, 5), (3, 4, 9))
    assert place_breadth_objects(problem).arena_bytes == 9 + 5


def test_objects_lie_above_fixed_buffers_and_are_aligned_for_all_members():
    problem = LayoutProblem(
        (
            Buffer("fixed", 0, 1, 3, offset=2),
            Buffer("a", 0, 1, 5, 2),
            Buffer("b", 1, 2, 3, 8),
            Buffer("c", 0, 2, 1),
        )
    )
    layout = lay_end_to_end(problem, (9, 0, 0, 1), (0, 0, 0, 0), (5, 1))
    assert layout.offsets == (2, 8, 8, 13)
    check_layout(problem, layout)


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
