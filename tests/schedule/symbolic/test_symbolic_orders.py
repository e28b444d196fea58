"""Orders for a range of shapes: what is said of their peaks is checked at every shape."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neaptide.outcome import Limits
from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.symbolic.lists import list_order
from neaptide.schedule.symbolic.orders import symbolic_orders
from neaptide.schedule.symbolic.peaks import is_never_higher
from neaptide.schedule.symbolic.problem import symbolic_problem
from schedule.symbolic.symbolic_graphs import listing_1, shapes_of, symbolic_graphs
from support.drawn import examples


@given(symbolic_graphs(max_nodes=9), st.data())
@settings(max_examples=examples(120))
def test_every_claim_holds_at_every_shape(graph, data):
    problem = symbolic_problem(graph, device="cpu")
    candidates = symbolic_orders(problem, Limits(work=300))
    first = candidates[0].peak
    is_best = [is_never_higher(first, other.peak) for other in candidates]
    for shape in data.draw(st.lists(st.sampled_from(shapes_of(graph)), min_size=1, max_size=5)):
        static = problem.at(shape)
        peaks = [evaluate_order(static, candidate.order).peak_bytes for candidate in candidates]
        assert peaks == [candidate.peak.evaluate(shape) for candidate in candidates]
        assert all(peaks[0] <= peak for proved, peak in zip(is_best, peaks, strict=True) if proved)


@pytest.mark.parametrize("copies", [True, False])
def test_one_order_of_listing_1_is_proved_best_for_all_shapes(copies):
    problem = symbolic_problem(listing_1(copies=copies))
    peaks = [candidate.peak for candidate in symbolic_orders(problem)]
    assert any(all(is_never_higher(own, other) for other in peaks) for own in peaks)


@given(symbolic_graphs(max_nodes=9))
@settings(max_examples=examples(60))
def test_both_directions_of_the_list_compete(graph):
    problem = symbolic_problem(graph, device="cpu")
    given_order = tuple(range(problem.structure.op_count))
    orders = {candidate.order for candidate in symbolic_orders(problem, Limits(work=0))}
    assert orders >= {given_order, *(list_order(problem, reverse=r) for r in (False, True))}
