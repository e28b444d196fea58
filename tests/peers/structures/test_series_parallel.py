import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neaptide.schedule.order.problem import OrderOp, OrderProblem, OrderStorage
from neaptide.schedule.order.regions.segments import flatten
from neaptide.schedule.order.steps import to_steps
from neaptide_peers.structures.refusal import Refusal
from neaptide_peers.structures.series_parallel import compose
from schedule.order.small_orders import all_orders, dominates, from_edges, profile, profile_of
from support.drawn import examples

seeds = st.integers(0, 2**32)


def random_edges(rng: random.Random, count: int) -> list[tuple[int, int]]:
    """A two-terminal series-parallel multigraph, tails before heads."""
    edges = [(0, 1)]
    for node in range(2, count):
        index = rng.randrange(len(edges))
        tail, head = edges[index]
        if rng.random() < 0.5:
            edges.pop(index)
        edges += [(tail, node), (node, head)]
        if rng.random() < 0.3:
            edges.append(rng.choice(edges))
    order: list[int] = []
    while len(order) < count:
        order += [n for n in range(count) if n not in order and all(a in order for a, b in edges if b == n)][
            :1
        ]
    place = {node: index for index, node in enumerate(order)}
    return [(place[a], place[b]) for a, b in edges]


@settings(max_examples=examples(150), deadline=None)
@given(seeds)
def test_edge_buffer_order_dominates_every_order(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.randint(2, 7)
    edges = random_edges(rng, count)
    workspace = [rng.choice([0, rng.randint(0, 9)]) for _ in range(count)]
    storages = tuple(OrderStorage(f"b{i}", rng.randint(0, 9)) for i in range(len(edges)))
    ops = tuple(
        OrderOp(
            f"n{n}",
            tuple(i for i, (_, head) in enumerate(edges) if head == n),
            tuple(i for i, (tail, _) in enumerate(edges) if tail == n),
            workspace[n],
        )
        for n in range(count)
    )
    problem = OrderProblem(storages, ops)
    best = compose(problem, to_steps(problem))
    order = [op for segment in best.segments for op in flatten(segment.ops)]
    assert problem.is_order(order)
    mine = profile(best.segments)
    assert all(dominates(mine, profile_of(problem, order)) for order in all_orders(problem))


def test_the_op_that_breaks_the_structure_is_named() -> None:
    problem = from_edges([1] * 5, [(0, 1), (0, 2), (1, 3), (1, 4), (2, 4)])
    with pytest.raises(Refusal, match="meet at op n4 start at different ops: n0 and n1"):
        compose(problem, to_steps(problem))
    starts = from_edges([1] * 4, [(0, 2), (0, 3), (1, 3)])
    with pytest.raises(Refusal, match="meet at op n3 start at different ops: n0 and the start"):
        compose(starts, to_steps(starts))
