import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neaptide.errors import VerifyError
from neaptide.outcome import Limits
from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.incremental import adapted_order, reschedule
from neaptide.schedule.order.portfolio import best_order
from neaptide.schedule.order.problem import OrderOp, OrderProblem, OrderStorage
from schedule.order.order_problems import random_problem


def recomputed(problem, rng):
    """A storage made a second time for its last reader: what a recomputation looks like. With the new op's index."""
    choices = [
        s
        for s, accessors in enumerate(problem.accessors)
        if len(accessors) >= 3
        and not problem.storages[s].output
        and sum(s in op.writes for op in problem.ops) == 1
        and not problem.from_start[s]
    ]
    if not choices:
        return None
    storage = rng.choice(choices)
    creator, user = problem.accessors[storage][0], problem.accessors[storage][-1]
    twin = len(problem.storages)
    storages = (*problem.storages, replace(problem.storages[storage], name="twin"))
    again = replace(
        problem.ops[creator],
        name="again",
        writes=(twin,),
        in_place=(),
        after=(),
    )
    old = problem.ops[user]
    swapped = replace(
        old,
        reads=tuple(twin if s == storage else s for s in old.reads),
        in_place=tuple(p for p in old.in_place if storage not in p),
    )

    def shifted(op):
        return replace(op, after=tuple(a + (a >= user) for a in op.after))

    ops = [shifted(op) for op in problem.ops]
    ops[user] = shifted(swapped)
    ops.insert(user, again)
    return OrderProblem(storages, tuple(ops), problem.name), user


@given(st.integers(0, 10**6), st.integers(8, 30))
@settings(max_examples=60, deadline=None)
def test_after_a_recomputation_the_answer_is_legal_bounded_and_most_often_the_best(seed, n):
    problem = random_problem(seed, n, control=False)
    edit = recomputed(problem, random.Random(seed))
    if edit is None:
        return
    after, new = edit
    old = best_order(problem, Limits(work=3000)).require().order
    outcome = reschedule(after, [op + (op >= new) for op in old], [new + 1])
    found = outcome.require()
    assert evaluate_order(after, found.order).peak_bytes == found.peak_bytes
    assert found.order_lower_bound_bytes <= found.peak_bytes
    full = best_order(after, Limits(work=20000)).require()
    if full.certificate.is_optimal:
        assert full.peak_bytes <= found.peak_bytes


def test_share_of_edits_that_reach_the_full_run():
    """At least 95 of 100 edits, in peak and in bound."""
    equal = equal_bounds = total = 0
    for seed in range(36):
        problem = random_problem(seed, 40, control=False, reach=4)
        edit = recomputed(problem, random.Random(seed))
        if edit is None:
            continue
        after, new = edit
        old = best_order(problem, Limits(work=2000)).require().order
        found = reschedule(after, [op + (op >= new) for op in old], [new + 1]).require()
        full = best_order(after, Limits(work=2000)).require()
        total += 1
        equal += found.peak_bytes <= full.peak_bytes
        equal_bounds += found.order_lower_bound_bytes >= full.order_lower_bound_bytes
    assert total >= 20
    assert equal >= 0.95 * total
    assert equal_bounds >= 0.95 * total


@given(st.integers(0, 10**6), st.integers(1, 20), st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_old_order_is_adapted(seed, n, choice):
    problem = random_problem(seed, n, mutation=True)
    rng = random.Random(choice)
    old = rng.sample(range(n), rng.randint(0, n))
    order = adapted_order(problem, old)
    assert problem.is_order(order)
    assert adapted_order(problem, order) == order


def test_wrong_old_order_is_refused():
    problem = OrderProblem((OrderStorage("a", 1),), (OrderOp("f", (), (0,)),))
    for wrong in ((0, 0), (1,)):
        with pytest.raises(VerifyError, match="old order"):
            adapted_order(problem, wrong)
    assert reschedule(problem, [0], []).require().order == (0,)
