"""What is known of one number of parts is told of others: savings as they are, losses by how many parts there are."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from neaptide.cost.presets import PRESETS, get_device
from neaptide.planner.variants.estimate import Estimate, PartCosts
from neaptide.planner.variants.goal import Goal
from neaptide.planner.variants.price import Price

GOAL = Goal(0, 1.1)  # the lowest peak within 1.1 seconds
CHOICE, OTHER = (SimpleNamespace(nbytes=1000) for _ in range(2))


def estimate(parts, choice=CHOICE, peak=None):
    return Estimate(choice, parts, 1000.0 / parts if peak is None else peak, 0.0, 0.0)


def beyond(price, parts, choice=CHOICE):
    """Seconds by which a number of parts is taken to be too long."""
    return price.rank(estimate(parts, choice), GOAL)[0]


@pytest.fixture
def begun():
    return Price(before_seconds=1.0, share_per_second=1.0)


def test_fewer_parts_may_be_in_time_where_many_are_not(begun):
    seen = begun.seen(estimate(16), 1.19)
    assert beyond(seen, 16) == pytest.approx(0.09)
    assert beyond(seen, 4) == 0.0
    assert beyond(seen, 32) > beyond(seen, 16)
    assert [beyond(seen, n) for n in range(2, 40)] == sorted(beyond(seen, n) for n in range(2, 40))


def test_what_parts_save_they_save_in_any_number(begun):
    seen = begun.seen(estimate(4), 0.8)
    ranks = [seen.rank(estimate(parts, peak=500.0), GOAL) for parts in (2, 4, 16)]
    assert ranks[0] == ranks[1] == ranks[2]


def test_a_choice_that_was_not_priced_has_the_benefit_of_the_doubt(begun):
    seen = begun.seen(estimate(4), 1.12)
    assert beyond(seen, 4) == pytest.approx(0.02)
    assert beyond(seen, 4, OTHER) == 0.0


@pytest.mark.parametrize("name", list(PRESETS))
def test_adding_up_is_as_fast_as_the_memory_of_the_device(name):
    device = get_device(name)
    costs = PartCosts.on(device)
    assert costs.added_byte_seconds * device.main_space.bandwidth_bytes_per_s == pytest.approx(3.0)
