"""A range cut into boxes: every claim is checked at every shape, and a winner that changes is found."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

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
