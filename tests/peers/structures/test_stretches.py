import random

from hypothesis import given, settings
from hypothesis import strategies as st

from example_counts import examples
from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.problem import OrderProblem
from neaptide_peers.structures.stretches import restrict
from small_orders import all_orders, profile_of, random_problem

seeds = st.integers(0, 2**32)


def problem_of(seed: int) -> OrderProblem:
    rng = random.Random(seed)
    return random_problem(rng, rng.randint(1, 6), mutation=rng.random() < 0.3)


@settings(max_examples=examples(150), deadline=None)
@given(seeds)
def test_parts_of_an_order_have_the_bytes_of_the_whole(seed: int) -> None:
    problem = problem_of(seed)
    rng = random.Random(seed)
    order = rng.choice(list(all_orders(problem)))
    cuts = sorted(rng.randint(0, len(order)) for _ in range(2))
    part, ops = restrict(problem, frozenset(order[: cuts[0]]), frozenset(order[: cuts[1]]))
    inner = [ops.index(op) for op in order[cuts[0] : cuts[1]]]
    whole = evaluate_order(problem, order).bytes_at
    assert evaluate_order(part, inner).bytes_at == whole[cuts[0] : cuts[1]]
    assert tuple(profile_of(problem, order)[1::2]) == whole
