"""Bounds: what they claim is true at every point of the box."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neaptide.errors import SymbolicError
from neaptide.symbolic.parsing import parse_size_expr
from neaptide.symbolic.ranges import Interval, bound, decided
from neaptide.symbolic.size_expr import SizeExpr, maximum
from support.drawn import size_exprs

B, T = map(SizeExpr.dim, ("B", "T"))


@st.composite
def boxes(draw):
    lows = {name: draw(st.integers(0, 4)) for name in ("B", "T")}
    return {name: Interval(low, low + draw(st.integers(0, 5))) for name, low in lows.items()}


def points(box):
    for b, t in product(*(range(box[n].low, box[n].high + 1) for n in ("B", "T"))):
        yield {"B": b, "T": t}


@given(size_exprs(("B", "T")), boxes())
def test_bound_holds_everywhere_in_the_box(expr, box):
    over = bound(expr, box)
    open_ended = bound(expr, {name: Interval(i.low) for name, i in box.items()})
    for point in points(box):
        assert expr.evaluate(point) in over
        assert expr.evaluate(point) in open_ended


def test_what_is_smaller_than_the_divisor_is_its_own_remainder():
    box = {"B": Interval(1, 9), "T": Interval(2, 7)}
    assert bound(parse_size_expr("mod(B, B*T)"), box) == Interval(1, 9)
    assert bound(parse_size_expr("mod(1, T)"), box) == Interval(1, 1)
    assert bound(parse_size_expr("mod(1, T)"), {"T": Interval(1, 7)}) == Interval(0, 1)


def test_bound_of_a_multilinear_expression_is_exact():
    assert bound(B * T - 3 * B, {"B": Interval(1, 4), "T": Interval(1, 8)}) == Interval(-8, 20)


def test_an_empty_range_is_an_error():
    with pytest.raises(SymbolicError, match="empty range"):
        Interval(3, 2)


RANGES = {"B": Interval(1, 6), "T": Interval(2, 5)}


def test_a_decided_size_is_the_same_at_every_shape():
    sizes = (
        *(maximum(B, 1), maximum(B, 4), maximum(B * T, T), maximum(B, T) * 3 + B, maximum(-B, -6 * T)),
        *(maximum(maximum(B, 9), T) // 2, maximum(B // 2, 3) % 4, maximum(B, 1) * maximum(B, 1)),
    )
    for size in sizes:
        for b, t in product(range(1, 7), range(2, 6)):
            binding = {"B": b, "T": t}
            assert decided(size, RANGES).evaluate(binding) == size.evaluate(binding)


def test_what_ranges_decide_is_gone_and_the_rest_stays():
    assert decided(maximum(B, 1), RANGES) == B
    assert decided(-maximum(SizeExpr.const(-4), -4 * B), RANGES) == SizeExpr.const(4)
    assert decided(maximum(B, T), RANGES) == maximum(B, T)
