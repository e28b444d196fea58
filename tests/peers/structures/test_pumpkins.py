import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.problem import OrderOp, OrderProblem, OrderStorage
from neaptide.schedule.order.regions.segments import Segment
from neaptide_peers.orders.structures import pumpkin_order
from neaptide_peers.structures.pumpkins import (
    Pumpkin,
    count_splits,
    order_by_phase_split,
    order_pumpkin,
    pumpkin_of,
)
from neaptide_peers.structures.refusal import Refusal
from schedule.order.small_orders import best_peak, from_edges
from support.drawn import examples


def random_pumpkin(rng: random.Random, chains: int, longest: int) -> Pumpkin:
    count, built = 0, []
    for _ in range(chains):
        level, steps = 0, []
        for _ in range(rng.randint(1, longest)):
            new = rng.randint(0, 9)
            steps.append(Segment(new + rng.choice([0, 0, rng.randint(0, 9)]), new - level, count))
            count, level = count + 1, new
        built.append(tuple(steps))
    return Pumpkin(rng.randint(0, 15), tuple(built))


@settings(max_examples=examples(150), deadline=None)
@given(st.integers(0, 2**32))
def test_few_places_suffice_for_the_phase_split(seed: int) -> None:
    rng = random.Random(seed)
    pumpkin = random_pumpkin(rng, rng.randint(1, 4), 5)
    few, every = order_by_phase_split(pumpkin), order_by_phase_split(pumpkin, everywhere=True)
    assert few.peak_bytes == every.peak_bytes == order_pumpkin(pumpkin, 100_000).peak_bytes
    assert few.states == count_splits(pumpkin)


@settings(max_examples=examples(150), deadline=None)
@given(st.integers(0, 2**32))
def test_a_problem_that_is_a_pumpkin_is_ordered_best(seed: int) -> None:
    """With runs before the source and after the sink, and other storages that the chains share."""
    rng = random.Random(seed)
    before, behind, lengths = (
        rng.randint(1, 2),
        rng.randint(0, 2),
        [rng.randint(1, 2) for _ in range(rng.randint(2, 3))],
    )
    edges = [(i, i + 1) for i in range(before - 1)]
    count, lasts = before, []
    for length in lengths:
        edges += [(before - 1, count), *((i, i + 1) for i in range(count, count + length - 1))]
        count += length
        lasts.append(count - 1)
    if behind:
        edges += [(last, count) for last in lasts]
        edges += [(i, i + 1) for i in range(count, count + behind - 1)]
        count += behind
    problem = from_edges(
        [rng.randint(0, 9) for _ in range(count)],
        edges,
        [rng.choice([0, rng.randint(0, 9)]) for _ in range(count)],
    )
    whole = pumpkin_of(problem)
    assert (len(whole.before), len(whole.pumpkin.chains), len(whole.behind)) == (before, len(lengths), behind)
    outcome = pumpkin_order(problem)
    assert outcome.termination.is_proved
    assert (
        evaluate_order(problem, outcome.require()).peak_bytes
        == outcome.termination.best
        == best_peak(problem)
    )


def test_what_breaks_a_pumpkin_is_named() -> None:
    crossed = from_edges([1] * 6, [(0, 1), (0, 2), (1, 3), (1, 4), (2, 4), (3, 5), (4, 5)])
    with pytest.raises(Refusal, match="op n1 has several ops before it or after it"):
        pumpkin_of(crossed)
    chain = from_edges([1] * 3, [(0, 1), (1, 2)])
    with pytest.raises(Refusal, match="no op at which several chains start"):
        pumpkin_of(chain)
    with pytest.raises(Refusal, match="op n0 and op n1 both come first"):
        pumpkin_of(from_edges([1] * 3, [(0, 2), (1, 2)]))
    storages = tuple(OrderStorage(f"s{i}", 4) for i in range(2))
    ops = (
        OrderOp("source", (), (0, 1)),
        *(OrderOp(f"head{i}", (0,), (), after=(0,)) for i in range(2)),
        *(OrderOp(f"late{i}", (1,), (), after=(i + 1,)) for i in range(2)),
    )
    with pytest.raises(Refusal, match="storage s1 may be used last by late0 or late1"):
        pumpkin_of(OrderProblem(storages, ops))
