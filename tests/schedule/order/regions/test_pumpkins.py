import random
import threading

from hypothesis import given, settings
from hypothesis import strategies as st

from example_counts import examples
from neaptide.outcome import LimitGuard, Limits
from neaptide.schedule.order.regions.lattice import levels_of
from neaptide.schedule.order.regions.pumpkins import (
    Pumpkin,
    count_splits,
    order_by_phase_split,
    order_pumpkin,
    pumpkin_region,
)
from neaptide.schedule.order.regions.segments import Segment
from small_orders import linear_extensions


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


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_phase_split_meets_the_best_of_all_orders(seed: int) -> None:
    rng = random.Random(seed)
    pumpkin = random_pumpkin(rng, rng.choice([1, 2, 3]), 2)
    region, _ = pumpkin_region(pumpkin)
    best = min(max(levels_of(region, order)) for order in linear_extensions(region.predecessors))
    assert order_by_phase_split(pumpkin).peak_bytes == best


def test_an_interrupt_gives_a_bound_and_says_so() -> None:
    stop = threading.Event()
    stop.set()
    pumpkin = random_pumpkin(random.Random(1), 9, 6)
    refused = order_pumpkin(pumpkin, 100_000, LimitGuard(Limits(), stop))
    assert refused.order is None
    assert "interrupt" in refused.reason
    assert refused.peak_bytes <= order_pumpkin(pumpkin, 100_000).peak_bytes


def test_above_the_limit_there_is_a_bound_and_a_reason() -> None:
    pumpkin = random_pumpkin(random.Random(1), 9, 6)
    refused = order_pumpkin(pumpkin, 2)
    assert refused.order is None
    assert "9 chains" in refused.reason
    assert refused.peak_bytes <= order_pumpkin(pumpkin, 100_000).peak_bytes
