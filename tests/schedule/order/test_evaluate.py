import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neaptide.errors import VerifyError
from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.heuristics import DownsetState
from neaptide.schedule.order.problem import OrderOp, OrderProblem, OrderStorage
from neaptide.schedule.order.search.lattice import Lattice
from neaptide.schedule.order.sharing import Takeover, shared_bytes
from neaptide.schedule.order.steps import profile, to_steps
from schedule.order.order_problems import all_orders, literal_bytes, random_problem
from support.drawn import examples

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
def test_steps_states_and_lattices_agree_with_the_judge(problem, reverse, seed):
    rng = random.Random(seed)
    steps = to_steps(problem)
    state, lattice = DownsetState(steps, reverse=reverse), Lattice(steps, reverse=reverse)
    left, nbytes, hills, levels = lattice.left, lattice.start_bytes, [], [state.bytes]
    while state.ready:
        op = rng.choice(list(state.ready))
        hill, nbytes = lattice.move(left, nbytes, op)
        left &= ~(1 << op)
        state.run(op)
        assert state.bytes == nbytes
        hills.append(hill)
        levels.append(nbytes)
    played, checked = profile(steps, state.order()), evaluate_order(problem, state.order())
    assert played.bytes_at == checked.bytes_at
    assert (played.peak_bytes, played.peak_position) == (checked.peak_bytes, checked.peak_position)
    turn = -1 if reverse else 1
    assert (tuple(hills[::turn]), tuple(levels[::turn])) == (played.bytes_at, played.between)
    assert all(steps.bytes_after(state.order()[:k]) == level for k, level in enumerate(played.between))
    start, end = sorted(rng.choices(range(len(hills) + 1), k=2))
    inner = steps.window(state.order()[:start], state.order()[start:end])
    part = profile(inner, range(end - start))
    assert (part.bytes_at, part.between) == (checked.bytes_at[start:end], played.between[start : end + 1])
    if end - start > 1:
        again = profile(inner.window((0,), range(1, end - start)), range(end - start - 1))
        assert again.bytes_at == checked.bytes_at[start + 1 : end]
    relaxed = steps.window(state.order()[:start], state.order()[start:end], relaxed=True)
    assert all(
        a <= b for a, b in zip(profile(relaxed, range(end - start)).bytes_at, part.bytes_at, strict=True)
    )


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
