"""Bounds and comparisons: everything they claim is true at every point of the box."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neaptide.errors import SymbolicError
from neaptide.symbolic.ranges import Interval, bound, compare
from neaptide.symbolic.size_expr import SizeExpr, maximum
from strategies import size_exprs

B, T, S0, S1 = map(SizeExpr.dim, ("B", "T", "S0", "S1"))
POSITIVE = {"B": Interval(1), "T": Interval(1), "S1": Interval(1)}
TRUE_OF = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    "==": lambda a, b: a == b,
    ">=": lambda a, b: a >= b,
    ">": lambda a, b: a > b,
}


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


@given(size_exprs(("B", "T")), size_exprs(("B", "T")), boxes())
def test_comparison_is_true_everywhere_in_the_box(a, b, box):
    order = compare(a, b, box)
    if order is not None:
        assert all(TRUE_OF[order](a.evaluate(p), b.evaluate(p)) for p in points(box))


def test_bound_of_a_multilinear_expression_is_exact():
    assert bound(B * T - 3 * B, {"B": Interval(1, 4), "T": Interval(1, 8)}) == Interval(-8, 20)


@pytest.mark.parametrize(
    ("a", "b", "order"),
    [
        (T, 2 * T, "<"),
        (B * T, B, ">="),
        (2 * (T // 2), T, "<="),
        (maximum(B, T), T, ">="),
        (maximum(B, T), B + T, "<"),
        (T % 8, SizeExpr.const(8), "<"),
        (B, T, None),
        (B + T, T + B, "=="),
        (T * T, T, ">="),
        ((T + 7) // 8 * 8, T, ">="),
    ],
)
def test_comparisons_that_must_be_proved(a, b, order):
    assert compare(a, b, POSITIVE) == order


def test_relations_are_substituted_first():
    assert compare(S0, 11 * S1, POSITIVE, {"S0": 12 * S1}) == ">"
    assert compare(S0, 12 * B, POSITIVE, {"S0": 12 * S1, "S1": B}) == "=="


def test_circular_relations_are_an_error():
    with pytest.raises(SymbolicError, match="circle"):
        compare(S0, S1, POSITIVE, {"S0": 2 * S1, "S1": S0 + 1})


def test_an_empty_range_is_an_error():
    with pytest.raises(SymbolicError, match="empty range"):
        Interval(3, 2)
