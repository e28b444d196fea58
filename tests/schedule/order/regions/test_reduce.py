import random
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neaptide.outcome import Limits
from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.problem import OrderOp, OrderProblem, OrderStorage
from neaptide.schedule.order.regions.parts import PartKind
from neaptide.schedule.order.regions.reduce import Reduced, reduce
from neaptide.schedule.order.steps import profile, to_steps
from schedule.order.order_problems import random_problem
from schedule.order.small_orders import best_peak, from_edges, linear_extensions
from support.drawn import examples
from support.together import together

seeds = st.integers(0, 2**32)


def least_peak(reduced: Reduced) -> int:
    orders = linear_extensions(reduced.steps.predecessors)
    return min(profile(reduced.steps, order).peak_bytes for order in orders)


@settings(max_examples=examples(250), deadline=None)
@given(seeds)
def test_reduction_keeps_the_best_peak_and_every_order_expands(seed: int) -> None:
    rng = random.Random(seed)
    problem = random_problem(
        seed, rng.randint(0, 7), in_place=rng.random() < 0.5, mutation=rng.random() < 0.3
    )
    reduced = reduce(to_steps(problem))
    assert sorted(op for ops in reduced.contents for op in ops) == list(range(problem.op_count))
    if problem.op_count:
        assert best_peak(problem) == least_peak(reduced)
    for order in islice(linear_extensions(reduced.steps.predecessors), 20):
        expanded = reduced.expand(order)
        assert problem.is_order(expanded)
        assert evaluate_order(problem, expanded).peak_bytes == profile(reduced.steps, order).peak_bytes


@together("region_states", [0, 1, 5], quick=(1,))
def test_reduction_stays_exact_when_regions_are_given_up(region_states: int) -> None:
    for seed in range(150):
        rng = random.Random(seed)
        problem = random_problem(seed, rng.randint(1, 7), in_place=seed % 2 == 0)
        reduced = reduce(to_steps(problem), region_states=region_states)
        assert best_peak(problem) == least_peak(reduced)


def test_repeated_blocks_are_solved_once() -> None:
    # Two forks of one tensor whose branches join at different ops: neither is a series-parallel step.
    block = [(0, 1), (0, 2), (0, 3), (1, 4), (2, 4), (2, 5), (3, 5), (4, 6), (5, 6)]
    edges = [(a + 7 * k, b + 7 * k) for k in range(30) for a, b in block] + [
        (7 * k + 6, 7 * k + 7) for k in range(29)
    ]
    problem = from_edges([9, 4, 6, 3, 5, 2, 8] * 30, edges)
    stats = reduce(to_steps(problem)).stats
    assert len([part for part in stats.parts if part.kind is PartKind.REGION]) == 30
    assert stats.cached == 29


def test_large_problem_without_bit_sets_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("neaptide.schedule.order.steps.EXACT_REACH_OPS", 0)
    for seed in range(150):
        problem = random_problem(seed, 6)
        assert least_peak(reduce(to_steps(problem))) == best_peak(problem)


def test_work_limit_stops_early_and_stays_exact() -> None:
    for seed in range(40):
        problem = random_problem(seed, 6)
        assert least_peak(reduce(to_steps(problem), Limits(work=1))) == best_peak(problem)


def test_takeover_that_hangs_on_the_order_keeps_its_op() -> None:
    storages = tuple(OrderStorage(f"s{i}", 8) for i in range(4))
    ops = (
        OrderOp("make", (), (0,)),
        OrderOp("left", (0,), (1,), in_place=((1, 0),)),
        OrderOp("right", (0,), (2,), in_place=((2, 0),)),
        OrderOp("join", (1, 2), (3,)),
    )
    problem = OrderProblem(storages, ops)
    reduced = reduce(to_steps(problem))
    assert least_peak(reduced) == best_peak(problem) == 24
    assert reduced.steps.takeovers
