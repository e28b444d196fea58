import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.problem import OrderOp, OrderProblem, OrderStorage
from neaptide.schedule.order.regions.reduce import reduce
from neaptide.schedule.order.steps import profile as played
from neaptide.schedule.order.steps import to_steps
from neaptide_peers.structures.refusal import Refusal
from neaptide_peers.structures.trees import tree_of
from schedule.order.small_orders import all_orders, best_peak, dominates, from_edges, profile, profile_of
from support.drawn import examples

seeds = st.integers(0, 2**32)


def random_parents(rng: random.Random, count: int) -> list[int]:
    """Children before parents; now and then a second root."""
    return [
        rng.randint(i + 1, count - 1) if i < count - 1 and rng.random() < 0.9 else -1 for i in range(count)
    ]


@settings(max_examples=examples(150), deadline=None)
@given(seeds)
def test_liu_dominates_every_order_of_an_in_tree(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.randint(1, 7)
    parents = random_parents(rng, count)
    nbytes = [rng.randint(0, 9) for _ in range(count)]
    workspace = [rng.choice([0, rng.randint(0, 9)]) for _ in range(count)]
    problem = from_edges(nbytes, [(i, p) for i, p in enumerate(parents) if p >= 0], workspace)
    best = tree_of(problem)
    assert evaluate_order(problem, best.order).peak_bytes == best.peak_bytes == best_peak(problem)
    mine = profile(best.segments)
    assert all(dominates(mine, profile_of(problem, order)) for order in all_orders(problem))


@settings(max_examples=examples(100), deadline=None)
@given(seeds)
def test_out_tree_with_a_buffer_per_edge_is_the_reverse(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.randint(1, 7)
    parents = [rng.randint(0, i - 1) if i else -1 for i in range(count)]
    nbytes = [rng.randint(0, 9) for _ in range(count)]
    workspace = [rng.choice([0, rng.randint(0, 9)]) for _ in range(count)]
    storages = tuple(OrderStorage(f"b{i}", size) for i, size in enumerate(nbytes))
    ops = tuple(
        OrderOp(f"n{i}", (i,), tuple(c for c in range(count) if parents[c] == i), workspace[i])
        for i in range(count)
    )
    problem = OrderProblem(storages, ops)
    best = tree_of(problem)
    start = to_steps(problem).start_bytes
    assert evaluate_order(problem, best.order).peak_bytes == start + best.peak_bytes == best_peak(problem)
    mine = profile(best.segments, start)
    assert all(dominates(mine, profile_of(problem, order)) for order in all_orders(problem))
    reduced = reduce(to_steps(problem))
    assert reduced.is_solved
    assert played(reduced.steps, range(reduced.steps.op_count)).peak_bytes == start + best.peak_bytes


def test_what_breaks_a_tree_is_named() -> None:
    with pytest.raises(Refusal, match="storage t0 is shared: either n1 or n2 may use it last"):
        tree_of(from_edges([1, 1, 1], [(0, 1), (0, 2)]))
    after = (OrderOp("a", (), ()), OrderOp("b", (), (), after=(0,)), OrderOp("c", (), (), after=(0,)))
    with pytest.raises(Refusal, match="op a comes before several ops and op d after several"):
        tree_of(OrderProblem((), (*after, OrderOp("d", (), (), after=(1, 2)))))
