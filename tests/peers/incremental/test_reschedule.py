import random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from neaptide.outcome import Limits
from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.neutral import from_mapping
from neaptide.schedule.order.portfolio import best_order
from neaptide_corpus.nas_networks import nas_network
from neaptide_corpus.rand_wire import rand_wire
from neaptide_corpus.random_orders import layered, local
from neaptide_peers.incremental.reschedule import reschedule
from neaptide_peers.incremental.settling import settle
from peers.incremental.random_order_edits import EDIT_KINDS, random_edit
from schedule.order.order_problems import brute_force, random_problem
from support.drawn import examples

CORPUS = {
    "darts": lambda: from_mapping(nas_network("darts_imagenet")),
    "rand_wire": lambda: from_mapping(rand_wire(5)),
    "local": lambda: from_mapping(local(80, 7)),
    "layered": lambda: from_mapping(layered(80, 7)),
    "in_place": lambda: random_problem(11, 40, in_place=True, mutation=True),
    "control": lambda: random_problem(12, 40, in_place=True, reach=6),
    "wide": lambda: random_problem(13, 30, reach=8),
}


def settled(problem):
    found = best_order(problem).require()
    return settle(problem, found.order, found.order_lower_bound_bytes)


@pytest.mark.parametrize("seeds", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_edits_reach_peak_and_bound_of_a_full_run(seeds):
    """Equal in peak and in bound, in at least 95 of 100 edits of a fixed corpus."""
    total = same_peak = same_bound = 0
    for make in CORPUS.values():
        before = settled(make())
        for kind in ("rewrite", "recompute", "fission"):
            for seed in range(seeds):
                edit = random_edit(before.problem, kind, random.Random(seed))
                if edit is None:
                    continue
                found = reschedule(before, edit).require()
                full = best_order(edit.problem).require()
                assert evaluate_order(edit.problem, found.order).peak_bytes == found.peak_bytes
                total += 1
                same_peak += found.peak_bytes == full.peak_bytes
                same_bound += found.order_lower_bound_bytes == full.order_lower_bound_bytes
    assert total >= 18 * seeds
    assert same_peak >= 0.95 * total
    assert same_bound >= 0.95 * total


@given(st.integers(0, 10**6), st.integers(3, 6), st.booleans(), st.booleans(), st.sampled_from(EDIT_KINDS))
@settings(max_examples=examples(150), deadline=None)
def test_bound_is_below_every_order_of_the_edited_problem(seed, n, in_place, mutation, kind):
    problem = random_problem(seed, n, in_place=in_place, mutation=mutation)
    edit = random_edit(problem, kind, random.Random(seed))
    assume(edit is not None and edit.problem.op_count <= 8)
    found = reschedule(settled(problem), edit).require()
    assert evaluate_order(edit.problem, found.order).peak_bytes == found.peak_bytes
    assert found.order_lower_bound_bytes <= brute_force(edit.problem) <= found.peak_bytes


def test_an_edit_away_from_the_peak_takes_no_search():
    before = settled(from_mapping(nas_network("nasnet_imagenet")))
    work = []
    for seed in range(8):
        outcome = reschedule(before, random_edit(before.problem, "rewrite", random.Random(seed)))
        assert outcome.require().peak_bytes == outcome.require().order_lower_bound_bytes
        work.append(outcome.work)
    assert sorted(work)[4] <= 2


def test_limits_are_kept():
    problem = from_mapping(layered(150, 3))
    found = best_order(problem).require()
    before = settle(problem, found.order, found.order_lower_bound_bytes)
    for seed in range(5):
        edit = random_edit(problem, "recompute", random.Random(seed))
        outcome = reschedule(before, edit, limits=Limits(work=3))
        assert outcome.work <= 3
        assert edit.problem.is_order(outcome.require().order)
