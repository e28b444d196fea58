import random

from hypothesis import given, settings
from hypothesis import strategies as st

from example_counts import examples
from neaptide.outcome import LimitGuard, Limits
from neaptide.schedule.order.bounds.escape import escape_bound
from neaptide.schedule.order.bounds.lower import cut_bound, per_op_bound
from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.heuristics import lpmf
from neaptide.schedule.order.neutral import from_mapping
from neaptide.schedule.order.problem import OrderOp, OrderProblem, OrderStorage
from neaptide_corpus.conv_backward import Update
from neaptide_corpus.training_networks import TRAINING_STEPS, training_step
from neaptide_peers.orders.serenity_dp import downset_dp
from schedule.order.order_problems import all_orders, brute_force, random_problem

small = st.builds(
    random_problem, st.integers(0, 10**6), st.integers(1, 7), in_place=st.booleans(), mutation=st.booleans()
)


def escape(problem, order, *, reverse, floor=0, upper=10**9):
    guard = LimitGuard(Limits())
    return escape_bound(problem, order, floor=floor, upper_bytes=upper, guard=guard, reverse=reverse)


@given(small, st.booleans(), st.integers(0, 2**32))
@settings(max_examples=examples(300), deadline=None)
def test_bound_is_between_the_cut_bound_and_the_optimum(problem, reverse, seed):
    order = random.Random(seed).choice(list(all_orders(problem))[:200])
    optimum = brute_force(problem)
    floor = per_op_bound(problem)
    found = escape(problem, order, reverse=reverse, floor=floor)
    assert cut_bound(problem, order).nbytes <= found <= optimum
    assert escape(problem, order, reverse=reverse) <= found
    # The order only saves cuts.
    assert found == escape(problem, range(problem.op_count), reverse=reverse, floor=floor)
    assert escape(problem, order, reverse=reverse, upper=optimum) <= optimum


@given(st.integers(0, 10**6), st.booleans(), st.booleans())
@settings(max_examples=examples(60), deadline=None)
def test_bound_is_below_the_optimum_of_larger_problems(seed, in_place, mutation):
    problem = random_problem(seed, 16, in_place=in_place, mutation=mutation, reach=6)
    best = downset_dp(problem, LimitGuard(Limits()))
    assert best is not None
    optimum = evaluate_order(problem, best).peak_bytes
    for reverse in (False, True):
        assert escape(problem, range(16), reverse=reverse) <= optimum


def test_each_reader_has_a_cheap_place_behind_the_other_but_one_is_first():
    kept = OrderStorage("kept by left", 5), OrderStorage("kept by right", 5)
    made = OrderStorage("shared", 10), OrderStorage("left", 6), OrderStorage("right", 6)
    ops = (
        OrderOp("start", (), (2,)),
        OrderOp("left", (2, 0), (3,)),
        OrderOp("left end", (3,), ()),
        OrderOp("right", (2, 1), (4,)),
        OrderOp("right end", (4,), ()),
    )
    problem = OrderProblem((*kept, *made), ops)
    assert cut_bound(problem, range(5)).nbytes == 10 + 5 + 6
    assert brute_force(problem) == escape(problem, range(5), reverse=False) == 10 + 5 + 5 + 6


def test_it_proves_a_training_step_that_cuts_do_not():
    network, batch = TRAINING_STEPS["rand_wire_b1_224"]
    problem = from_mapping(training_step(network, batch=batch, update=Update.IN_PLACE))
    order = lpmf(problem)
    peak = evaluate_order(problem, order).peak_bytes
    cut = cut_bound(problem, order).nbytes
    assert cut < peak == escape(problem, order, reverse=False, floor=cut, upper=peak)


def test_at_a_limit_the_bound_so_far_holds():
    problem = random_problem(5, 40, reach=10)
    whole = LimitGuard(Limits())
    full = escape_bound(problem, range(40), floor=0, upper_bytes=10**9, guard=whole)
    assert whole.work > 3
    found = [
        escape_bound(problem, range(40), floor=0, upper_bytes=10**9, guard=LimitGuard(Limits(work=work)))
        for work in (*range(0, whole.work, max(1, whole.work // 8)), whole.work)
    ]
    assert found == sorted(found)
    assert found[-1] == full > found[0]
