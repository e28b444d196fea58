"""Methods for one structure as a whole: proved where it is there, refused in a sentence where it is not."""

import random
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neaptide.outcome import Limits, TerminationReason
from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.neutral import from_mapping
from neaptide.schedule.order.portfolio import best_order
from neaptide_corpus.series_parallel import Buffers, in_tree, out_tree, pumpkin, series_parallel
from neaptide_peers.orders.structures import (
    STRUCTURES,
    dominant_order,
    pumpkin_order,
    series_parallel_order,
    tree_order,
)
from schedule.order.order_problems import random_problem
from schedule.order.small_orders import best_peak
from support.drawn import examples


@pytest.mark.parametrize("name", STRUCTURES)
@settings(max_examples=examples(200), deadline=None)
@given(st.integers(0, 2**32))
def test_any_problem_is_ordered_best_or_refused(name: str, seed: int) -> None:
    rng = random.Random(seed)
    problem = random_problem(
        seed, rng.randint(1, 6), in_place=rng.random() < 0.3, mutation=rng.random() < 0.3
    )
    outcome = STRUCTURES[name](problem, Limits(), None)
    if outcome.value is None:
        assert outcome.termination.detail
        return
    assert evaluate_order(problem, outcome.value).peak_bytes == outcome.termination.best == best_peak(problem)


@pytest.mark.parametrize(
    ("method", "form"),
    [
        ("tree", in_tree(400, 0)),
        ("tree", out_tree(400, 0, buffers=Buffers.PER_EDGE)),
        ("series_parallel", series_parallel(400, 4, 0, buffers=Buffers.PER_EDGE)),
        ("series_parallel", series_parallel(400, 4, 0)),
        ("series_parallel", in_tree(400, 0)),
        ("pumpkin", pumpkin(6, 400, 0)),
    ],
)
def test_structures_of_the_corpus_are_proved(method: str, form) -> None:
    problem = from_mapping(form)
    outcome = STRUCTURES[method](problem, Limits(), None)
    assert outcome.termination.reason is TerminationReason.OPTIMAL
    peak = evaluate_order(problem, outcome.require()).peak_bytes
    assert peak == outcome.termination.best == best_order(problem).require().peak_bytes


@pytest.mark.parametrize(
    ("method", "words"),
    [
        (tree_order, "storage t"),
        (pumpkin_order, "op op_"),
    ],
)
def test_what_is_not_there_is_refused_with_a_bound(method, words: str) -> None:
    problem = from_mapping(series_parallel(60, 3, 0))
    outcome = method(problem)
    assert outcome.value is None
    assert outcome.termination.reason is TerminationReason.NO_SOLUTION_FOUND
    assert words in outcome.termination.detail
    assert 0 < outcome.termination.bound <= best_order(problem).require().peak_bytes


def test_limits_are_told_from_refusals() -> None:
    problem = from_mapping(pumpkin(9, 400, 0))
    few = pumpkin_order(problem, Limits(work=20))
    assert few.value is None
    assert few.work <= 20
    assert "9 chains" in few.termination.detail
    reduced = series_parallel_order(problem, Limits(work=20))
    assert reduced.termination.reason is TerminationReason.FEASIBLE
    assert reduced.work <= 20
    assert problem.is_order(reduced.require())
    stopped = dominant_order(problem, Limits(work=20), solver=best_order)
    assert stopped.value is None
    assert "is not proved" in stopped.termination.detail


def test_an_interrupt_ends_the_oracle() -> None:
    stop = threading.Event()
    stop.set()
    outcome = dominant_order(from_mapping(pumpkin(9, 400, 0)), Limits(), stop, solver=best_order)
    assert outcome.value is None
    assert outcome.termination.reason is TerminationReason.INTERRUPTED
