import random

from hypothesis import given, settings
from hypothesis import strategies as st

from neaptide.outcome import LimitGuard, Limits
from neaptide.schedule.order.bounds.lower import (
    cut_bound,
    escape_bound,
    op_bounds,
    per_op_bound,
    rest_bytes,
    sub_problem_bound,
)
from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.heuristics import lpmf
from neaptide.schedule.order.neutral import from_mapping
from neaptide.schedule.order.problem import OrderOp, OrderProblem, OrderStorage
from neaptide.schedule.order.steps import to_steps
from neaptide_corpus.conv_backward import Update
from neaptide_corpus.training_networks import TRAINING_STEPS, training_step
from neaptide_peers.orders.serenity_dp import downset_dp
from schedule.order.order_problems import all_orders, brute_force, random_problem
from support.drawn import examples

problems = st.builds(
    random_problem, st.integers(0, 10**6), st.integers(1, 7), in_place=st.booleans(), mutation=st.booleans()
)


def cut(problem, order, **options):
    options = {"floor": per_op_bound(problem), "guard": LimitGuard(Limits()), **options}
    return cut_bound(to_steps(problem), order, **options)


def escape(problem, order, *, reverse=False, floor=0, upper=10**9, guard=None):
    guard = guard or LimitGuard(Limits())
    steps = to_steps(problem)
    return escape_bound(steps, order, floor=floor, upper_bytes=upper, guard=guard, reverse=reverse)


@given(problems, st.booleans(), st.integers(0, 2**32))
@settings(max_examples=examples(300), deadline=None)
def test_bounds_are_ordered_and_below_the_optimum(problem, reverse, seed):
    order = random.Random(seed).choice(list(all_orders(problem))[:200])
    optimum = brute_force(problem)
    floor = per_op_bound(problem)
    found = escape(problem, order, reverse=reverse, floor=floor)
    assert floor <= cut(problem, order).nbytes <= found <= optimum
    assert escape(problem, order, reverse=reverse) <= found
    # The order only saves cuts.
    assert found == escape(problem, range(problem.op_count), reverse=reverse, floor=floor)
    assert escape(problem, order, reverse=reverse, upper=optimum) <= optimum
    steps = to_steps(problem)
    assert sub_problem_bound(steps, order, floor=0, guard=LimitGuard(Limits())) <= optimum
    bytes_at = evaluate_order(problem, order).bytes_at
    bounds = op_bounds(problem)
    assert all(bounds[op] <= nbytes for op, nbytes in zip(order, bytes_at, strict=True))
    assert rest_bytes(problem) == (steps.start_bytes, steps.bytes_after(order))


@given(problems, st.integers(0, 60))
@settings(max_examples=examples(120), deadline=None)
def test_cuts_for_a_proof_find_it_where_all_cuts_do(problem, more):
    order = range(problem.op_count)
    full = cut(problem, order)
    upper = evaluate_order(problem, order).peak_bytes - more
    proof = cut(problem, order, upper_bytes=upper, only_proof=True)
    assert proof.cuts <= full.cuts
    assert proof.nbytes <= full.nbytes
    assert (proof.nbytes >= upper) == (full.nbytes >= upper)


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
    assert cut(problem, range(5)).nbytes == 10 + 5 + 6
    assert brute_force(problem) == escape(problem, range(5), reverse=False) == 10 + 5 + 5 + 6


def test_it_proves_a_training_step_that_cuts_do_not():
    network, batch = TRAINING_STEPS["rand_wire_b1_224"]
    problem = from_mapping(training_step(network, batch=batch, update=Update.IN_PLACE))
    order = lpmf(to_steps(problem))
    peak = evaluate_order(problem, order).peak_bytes
    bound = cut(problem, order).nbytes
    assert bound < peak == escape(problem, order, floor=bound, upper=peak)


def test_at_a_limit_the_bound_so_far_holds():
    problem = random_problem(5, 40, reach=10)
    whole = LimitGuard(Limits())
    full = escape(problem, range(40), guard=whole)
    assert whole.work > 3
    found = [
        escape(problem, range(40), guard=LimitGuard(Limits(work=work)))
        for work in (*range(0, whole.work, max(1, whole.work // 8)), whole.work)
    ]
    assert found == sorted(found)
    assert found[-1] == full > found[0]
