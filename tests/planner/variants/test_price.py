"""What is known of one number of parts is told of others: savings as they are, losses by how many parts there are."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from neaptide import zoo
from neaptide.cost.model import EstimatedCost, roofline_seconds
from neaptide.cost.presets import PRESETS, get_device
from neaptide.ops import registry
from neaptide.planner.pricing import Pricing
from neaptide.planner.variants.estimate import Estimate, PartCosts, estimates
from neaptide.planner.variants.price import Goal, Price
from planner.variants.variant_search import choices_of_all
from support.catalogue import graph_of
from support.together import together

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


@together("name", list(PRESETS))
def test_what_a_call_loses_is_what_it_takes_beyond_its_full_rate(name):
    device = get_device(name)
    costs = replace(PartCosts.on(device), call_seconds=device.launch_s)
    flops, rate = 1e9, device.rate_flops_per_s("float32")
    nbytes, bandwidth = 1e7, device.main_space.bandwidth_bytes_per_s
    taken = np.array(
        [
            roofline_seconds(device, flops=flops, bytes_moved=0.0, dtype="float32"),
            roofline_seconds(device, flops=0.0, bytes_moved=nbytes, dtype="float32"),
        ]
    )
    busy = np.array([flops / rate, nbytes / bandwidth])
    lost = costs.lost(taken, np.array([True, False]))
    assert lost == pytest.approx(taken - device.launch_s - busy, rel=1e-6, abs=1e-12)


def test_seconds_of_parts_are_estimated_as_they_are_priced():
    device = get_device("rtx3090")
    graph = graph_of(zoo.factory("mlp@tiny,batch=4096", device="meta"))
    pricing = Pricing(EstimatedCost(device, registry()), registry())
    choices = choices_of_all()
    begun = choices.begun(graph)
    before = pricing.problem(begun.graph).baseline_seconds
    looked = estimates(begun, choices.after(begun), pricing, PartCosts.on(device))
    assert looked
    for one in looked:
        made = pricing.problem(choices.taken(one.choice, one.parts).graph).baseline_seconds
        longer_by = made - before
        assert one.seconds + one.added_seconds == pytest.approx(longer_by, rel=0.25)


def test_what_the_caller_owns_stays_whatever_is_recomputed():
    price = Price.of_bytes(1.0, 1000, longer=0.1, peak=600, persistent_bytes=200)
    goal = Goal(0, 1.05)
    assert price.brought(1000.0, 1.0, goal)[1] == pytest.approx(
        800.0
    )  # half the time, half of what it brings
    assert price.brought(300.0, 1.0, goal)[1] == pytest.approx(275.0)
    assert price.brought(200.0, 1.0, goal)[1] == pytest.approx(200.0)
    wanted = Goal(250, None)
    assert price.brought(300.0, 1.0, wanted)[1] == pytest.approx(1.0 + 0.5 / 5.0)
