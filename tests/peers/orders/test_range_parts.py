"""A range cut into boxes: every claim is checked at every shape, and a winner that changes is found."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from neaptide.ir.builder import GraphBuilder
from neaptide.schedule.symbolic.orders import symbolic_orders
from neaptide.schedule.symbolic.problem import symbolic_problem
from neaptide.symbolic.dims import Dim, Relation
from neaptide.symbolic.size_expr import SizeExpr
from neaptide_peers.orders.range_parts import best_parts

T, W = map(SizeExpr.dim, ("T", "W"))


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
    candidates = symbolic_orders(problem)
    forms = [candidate.peak.sizes for candidate in candidates]
    parts = best_parts(problem.store.dims, (), forms, tolerance=Fraction(0), most_parts=32)

    def at(shape):
        return candidates[next(part.order for part in parts if shape in part)]

    few, many = at({"T": 16}), at({"T": 90000})
    for shape, chosen in (({"T": 16}, few), ({"T": 90000}, many)):
        peaks = [candidate.peak.evaluate(shape) for candidate in candidates]
        assert chosen.peak.evaluate(shape) == min(peaks)
    assert few.order != many.order
    assert few.peak.evaluate({"T": 90000}) > many.peak.evaluate({"T": 90000})
    assert many.peak.evaluate({"T": 16}) > few.peak.evaluate({"T": 16})
