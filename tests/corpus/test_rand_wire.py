"""Random wiring: acyclic, small-world, the same on every machine, and with the published sizes."""

import random

import pytest

from neaptide.schedule.order.neutral import from_mapping
from neaptide_corpus.rand_wire import rand_wire, watts_strogatz
from order_play import operand_post_order, peak_bytes


@pytest.mark.parametrize("seed", range(10))
def test_edges_lead_upwards_and_keep_their_number(seed):
    edges = watts_strogatz(32, 4, 0.75, random.Random(seed))
    assert edges == sorted(set(edges))
    assert all(i < j for i, j in edges)
    assert len(edges) == 64


def test_without_rewiring_it_is_a_ring():
    edges = watts_strogatz(6, 2, 0.0, random.Random(0))
    assert edges == [(0, 1), (0, 5), (1, 2), (2, 3), (3, 4), (4, 5)]


# Operations with views as copies, and KB of the post-order with views as aliases.
@pytest.mark.parametrize(("seed", "ops", "kb"), [(0, 645, 5255), (1, 645, 4777), (2, 653, 5494)])
def test_networks_do_not_change_between_versions(seed, ops, kb):
    form = rand_wire(seed)
    assert peak_bytes(form, operand_post_order(form)) // 1024 == kb
    exported = rand_wire(seed, views_copy=True)
    assert len(exported["ops"]) == ops
    from_mapping(form)
    from_mapping(exported)


def test_views_that_copy_cost_memory():
    form, exported = rand_wire(0), rand_wire(0, views_copy=True)
    assert 6210 <= peak_bytes(exported, operand_post_order(exported)) // 1024 <= 6688
    assert peak_bytes(exported) > peak_bytes(form)
