"""Choices that ranges decide leave a size."""

from __future__ import annotations

from itertools import product

from neaptide.symbolic.ranges import Interval, decided
from neaptide.symbolic.size_expr import SizeExpr, maximum

A, B = SizeExpr.dim("A"), SizeExpr.dim("B")
RANGES = {"A": Interval(1, 6), "B": Interval(2, 5)}


def test_a_decided_size_is_the_same_at_every_shape():
    sizes = (
        *(maximum(A, 1), maximum(A, 4), maximum(A * B, B), maximum(A, B) * 3 + A, maximum(-A, -6 * B)),
        *(maximum(maximum(A, 9), B) // 2, maximum(A // 2, 3) % 4, maximum(A, 1) * maximum(A, 1)),
    )
    for size in sizes:
        for a, b in product(range(1, 7), range(2, 6)):
            binding = {"A": a, "B": b}
            assert decided(size, RANGES).evaluate(binding) == size.evaluate(binding)


def test_what_ranges_decide_is_gone_and_the_rest_stays():
    assert decided(maximum(A, 1), RANGES) == A
    assert decided(-maximum(SizeExpr.const(-4), -4 * A), RANGES) == SizeExpr.const(4)
    assert decided(maximum(A, B), RANGES) == maximum(A, B)
