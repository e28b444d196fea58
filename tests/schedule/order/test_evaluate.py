import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from example_counts import examples
from neaptide.errors import VerifyError
from neaptide.schedule.order.evaluate import DownsetState, evaluate_order
from neaptide.schedule.order.problem import OrderOp, OrderProblem, OrderStorage
from neaptide.schedule.order.sharing import Takeover, shared_bytes
from schedule.order.order_problems import all_orders, literal_bytes, random_problem

problems = st.builds(
    random_problem, st.integers(0, 10**6), st.integers(1, 6), in_place=st.booleans(), mutation=st.booleans()
)


@given(problems)
@settings(max_examples=examples(150), deadline=None)
def test_bytes_equal_the_words_of_the_form_for_every_order(problem):
    for order in itertools.islice(all_orders(problem), 60):
        profile = evaluate_order(problem, order)
        assert list(profile.bytes_at) == literal_bytes(problem, order)
        assert profile.peak_bytes == max(profile.bytes_at)
        assert profile.bytes_at.index(profile.peak_bytes) == profile.peak_position


@given(problems, st.booleans(), st.integers(0, 99))
@settings(max_examples=examples(150), deadline=None)
def test_moving_state_agrees_with_the_evaluator(problem, reverse, seed):
    rng = random.Random(seed)
    state = DownsetState(problem, reverse=reverse)
    hills = []
    while state.ready:
        for op in list(state.ready):
            before = (state.bytes, dict.fromkeys(sorted(state.ready)), state.hill(op))
            state.run(op)
            assert state.undo() == op
            assert before == (state.bytes, dict.fromkeys(sorted(state.ready)), state.hill(op))
        op = rng.choice(list(state.ready))
        hills.append(state.hill(op))
        expected = state.after(op)
        state.run(op)
        assert state.bytes == expected
    expected_hills = list(evaluate_order(problem, state.order()).bytes_at)
    assert (hills[::-1] if reverse else hills) == expected_hills


def test_order_that_is_no_order_is_refused_by_name():
    problem = OrderProblem(
        (OrderStorage("a", 1), OrderStorage("b", 2)), (OrderOp("f", (), (0,)), OrderOp("g", (0,), (1,)))
    )
    for wrong, words in (
        ((1, 0), "g stands before op f"),
        ((0,), "g is missing"),
        ((0, 0), "f stands twice"),
    ):
        with pytest.raises(VerifyError, match=words):
            evaluate_order(problem, wrong)


def test_in_place_saves_the_smaller_of_the_two_at_the_last_use_only():
    storages = (OrderStorage("x", 5), OrderStorage("y", 3), OrderStorage("z", 2, output=True))
    ops = (OrderOp("f", (0,), (1,), in_place=((1, 0),)), OrderOp("g", (0,), (2,), in_place=((2, 0),)))
    problem = OrderProblem(storages, ops)
    assert evaluate_order(problem, (0, 1)).bytes_at == (8, 5)
    assert evaluate_order(problem, (1, 0)).bytes_at == (7, 7)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(4, 7), st.integers(1, 9)), max_size=7))
def test_best_matching_of_takeovers(rows):
    pairs = [Takeover(w, r, n) for w, r, n in {(w, r): (w, r, n) for w, r, n in rows}.values()]
    best = 0
    for size in range(len(pairs) + 1):
        for some in itertools.combinations(pairs, size):
            if len({p.written for p in some}) == size == len({p.read for p in some}):
                best = max(best, sum(p.nbytes for p in some))
    assert shared_bytes(pairs) == best
