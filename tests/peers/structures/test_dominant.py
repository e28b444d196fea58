import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neaptide.outcome import LimitGuard, Limits
from neaptide.schedule.order.problem import OrderProblem
from neaptide.schedule.order.regions.segments import flatten
from neaptide.schedule.order.steps import to_steps
from neaptide_peers.orders.serenity_dp import downset_dp
from neaptide_peers.structures.dominant import dominant
from neaptide_peers.structures.refusal import Refusal
from schedule.order.order_problems import random_problem
from schedule.order.small_orders import all_orders, best_order, dominates, profile, profile_of
from support.drawn import examples


def by_downsets(problem: OrderProblem) -> tuple[int, ...]:
    return downset_dp(problem, LimitGuard(Limits())) or ()


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([best_order, by_downsets]))
def test_oracle_construction_dominates_every_order(seed, oracle) -> None:
    rng = random.Random(seed)
    problem = random_problem(
        seed, rng.randint(1, 6), in_place=rng.random() < 0.3, mutation=rng.random() < 0.3
    )
    steps = to_steps(problem)
    if steps.takeovers:
        with pytest.raises(Refusal, match="works in place"):
            dominant(problem, oracle)
        return
    segments = dominant(problem, oracle)
    order = [op for segment in segments for op in flatten(segment.ops)]
    assert problem.is_order(order)
    mine = profile(segments, steps.start_bytes)
    assert dominates(mine, profile_of(problem, order))
    assert all(dominates(mine, profile_of(problem, other)) for other in all_orders(problem))


def test_empty_region_has_no_segments() -> None:
    assert dominant(OrderProblem((), ()), best_order) == []
