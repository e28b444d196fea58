import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from example_counts import examples
from neaptide.corpus import series_parallel as generators
from neaptide.outcome import TerminationReason
from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.neutral import from_mapping
from neaptide.schedule.order.problem import OrderOp, OrderProblem, OrderStorage
from neaptide.schedule.order.regions.segments import dominates, profile
from neaptide.schedule.order.regions.series_parallel import (
    BufferEdge,
    is_series_parallel,
    order_edge_buffers,
    order_shared,
)
from small_orders import all_orders, best_peak, from_edges, profile_of

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
    edges = [BufferEdge(a, b, rng.randint(0, 9)) for a, b in random_edges(rng, count)]
    workspace = [rng.choice([0, rng.randint(0, 9)]) for _ in range(count)]
    storages = tuple(OrderStorage(f"b{i}", edge.nbytes) for i, edge in enumerate(edges))
    ops = tuple(
        OrderOp(
            f"n{n}",
            tuple(i for i, edge in enumerate(edges) if edge.head == n),
            tuple(i for i, edge in enumerate(edges) if edge.tail == n),
            workspace[n],
        )
        for n in range(count)
    )
    problem = OrderProblem(storages, ops)
    best = order_edge_buffers(count, edges, workspace)
    assert best is not None
    assert is_series_parallel(problem)
    assert evaluate_order(problem, best.order).peak_bytes == best.peak_bytes
    mine = profile(best.segments)
    assert all(dominates(mine, profile_of(problem, order)) for order in all_orders(problem))


@settings(max_examples=examples(150), deadline=None)
@given(seeds)
def test_shared_tensors_of_small_graphs_are_ordered_best(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.randint(2, 7)
    problem = from_edges([rng.randint(0, 9) for _ in range(count)], random_edges(rng, count))
    outcome = order_shared(problem)
    assert outcome.termination.reason is TerminationReason.OPTIMAL
    found = outcome.require()
    assert evaluate_order(problem, found.order).peak_bytes == found.peak_bytes == best_peak(problem)


@pytest.mark.parametrize("seed", range(6))
def test_thousand_nodes_of_out_degree_five_are_proved(seed: int) -> None:
    problem = from_mapping(generators.series_parallel(1000, 5, seed))
    outcome = order_shared(problem)
    assert outcome.termination.reason is TerminationReason.OPTIMAL
    found = outcome.require()
    assert evaluate_order(problem, found.order).peak_bytes == found.peak_bytes


def test_above_the_limit_there_are_bound_and_reason() -> None:
    problem = from_mapping(generators.pumpkin(12, 200, 7))
    outcome = order_shared(problem, region_states=100)
    assert outcome.termination.reason is TerminationReason.FEASIBLE
    assert "more than 100 downsets" in outcome.termination.detail
    assert 0 < outcome.termination.bound <= outcome.termination.best


def test_graph_that_is_not_series_parallel() -> None:
    problem = from_edges([1] * 4, [(0, 2), (0, 3), (1, 3)])
    assert not is_series_parallel(problem)
    edges = [BufferEdge(a, b, 1) for a, b in [(0, 1), (0, 2), (1, 2), (1, 3), (2, 3)]]
    assert order_edge_buffers(4, edges, [0] * 4) is None
