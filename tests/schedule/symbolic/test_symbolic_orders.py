"""Orders for a range of shapes: every claim is checked at every shape, and a winner that changes is found."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from example_counts import examples
from neaptide.ir.builder import GraphBuilder
from neaptide.outcome import Limits, TerminationReason
from neaptide.schedule.order.bounds.lower import per_op_bound
from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.symbolic.certificate import best_parts
from neaptide.schedule.symbolic.lists import list_order
from neaptide.schedule.symbolic.orders import symbolic_orders
from neaptide.schedule.symbolic.problem import symbolic_problem
from neaptide.symbolic.dims import Dim, Relation
from neaptide.symbolic.size_expr import SizeExpr
from symbolic_graphs import listing_1, shapes_of, symbolic_graphs

T, W = map(SizeExpr.dim, ("T", "W"))


@given(symbolic_graphs(max_nodes=9), st.data())
@settings(max_examples=examples(120))
def test_every_claim_holds_at_every_shape(graph, data):
    problem = symbolic_problem(graph, device="cpu")
    result = symbolic_orders(problem, Limits(work=300), most_parts=5).require()
    shapes = shapes_of(graph)
    for searched in result.searched:
        peaks = [candidate.peak.evaluate(searched.sizes) for candidate in result.candidates]
        assert per_op_bound(problem.at(searched.sizes)) <= searched.order_lower_bound_bytes <= min(peaks)
        assert searched.peak_bytes in peaks
    for shape in data.draw(st.lists(st.sampled_from(shapes), min_size=1, max_size=5)):
        static = problem.at(shape)
        peaks = [evaluate_order(static, candidate.order).peak_bytes for candidate in result.candidates]
        assert peaks == [candidate.peak.evaluate(shape) for candidate in result.candidates]
        parts = [part for part in result.parts if shape in part]
        assert len(parts) == 1
        for part in (result.whole, *parts):
            if part.excess is not None:
                assert peaks[part.order] <= (1 + part.excess) * min(peaks)
        assert result.at(shape) is result.candidates[parts[0].order]
        if result.excess_over_bound is not None:
            assert peaks[result.whole.order] <= (1 + result.excess_over_bound) * per_op_bound(static)


@given(st.data())
def test_parts_of_made_up_peaks_claim_what_is_true(data):
    forms = st.sampled_from([T * W, 3 * T, 7 * W, T * T, T + 40, T // 3 * 5, SizeExpr.const(30)])
    peaks = data.draw(st.lists(st.lists(forms, min_size=1, max_size=3), min_size=1, max_size=3))
    dims = (Dim("T", 1, 15), Dim("W", 0, 6))
    relations = data.draw(st.sampled_from([(), (Relation(T, 2 * W + 1),)]))
    parts = best_parts(
        dims, relations, peaks, tolerance=Fraction(0), most_parts=data.draw(st.integers(1, 12))
    )
    for t in range(1, 16):
        for w in range(7):
            shape = {"T": t, "W": w}
            if any(r.left.evaluate(shape) != r.right.evaluate(shape) for r in relations):
                continue
            (part,) = [part for part in parts if shape in part]
            numbers = [max(size.evaluate(shape) for size in peak) for peak in peaks]
            if part.excess is not None:
                assert numbers[part.order] <= (1 + part.excess) * min(numbers)


def _two_branches():
    """A branch whose temporary grows with T, and one whose result does: which goes first depends on T."""
    b = GraphBuilder("two")
    t = b.dim("T", 1, 100000)
    x = b.input("x", (t,))
    (wide,) = b.node("toy.a", x, outputs=["wide: f32[{T}]"])
    (small,) = b.node("toy.b", wide, outputs=["small: f32[100]"])
    (fixed,) = b.node("toy.c", x, outputs=["fixed: f32[9000]"])
    (rest,) = b.node("toy.d", fixed, outputs=["rest: f32[40]"])
    (end,) = b.node("toy.e", small, rest, outputs=["end: f32[1]"])
    b.output(end)
    return b.finish()


def test_the_parts_of_the_range_have_the_order_that_wins_there():
    problem = symbolic_problem(_two_branches())
    result = symbolic_orders(problem, tolerance=Fraction(0), most_parts=32).require()
    few, many = result.at({"T": 16}), result.at({"T": 90000})
    for shape, chosen in (({"T": 16}, few), ({"T": 90000}, many)):
        peaks = [candidate.peak.evaluate(shape) for candidate in result.candidates]
        assert chosen.peak.evaluate(shape) == min(peaks)
    assert few.order != many.order
    assert few.peak.evaluate({"T": 90000}) > many.peak.evaluate({"T": 90000})
    assert many.peak.evaluate({"T": 16}) > few.peak.evaluate({"T": 16})


@pytest.mark.parametrize("copies", [True, False])
def test_one_order_of_listing_1_is_proved_best_for_all_shapes(copies):
    outcome = symbolic_orders(symbolic_problem(listing_1(copies=copies)))
    result = outcome.require()
    assert len(result.parts) == 1
    assert result.whole.excess == 0
    assert "within 0.0% of the best" in outcome.termination.detail


@given(symbolic_graphs(max_nodes=9))
@settings(max_examples=examples(60))
def test_both_directions_of_the_list_compete(graph):
    problem = symbolic_problem(graph, device="cpu")
    orders = {c.order for c in symbolic_orders(problem, Limits(work=0)).require().candidates}
    assert orders >= {
        tuple(range(problem.structure.op_count)),
        *(list_order(problem, reverse=r) for r in (False, True)),
    }


def test_a_bound_that_is_met_is_a_proof():
    b = GraphBuilder("chain")
    t = b.dim("T", 1)
    x = b.input("x", (t,))
    (y,) = b.node("toy.a", x, outputs=["y: f32[{T}]"])
    (z,) = b.node("toy.b", y, outputs=["z: f32[{2*T}]"])
    b.output(z)
    outcome = symbolic_orders(symbolic_problem(b.finish()))
    assert outcome.termination.reason is TerminationReason.OPTIMAL
    assert outcome.require().excess_over_bound == 0
    assert [str(size) for size in outcome.require().best().peak.sizes] == ["16*T"]
