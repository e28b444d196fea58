"""Size expressions without the choices that ranges decide."""

from __future__ import annotations

from collections.abc import Mapping

from neaptide.symbolic.ranges import Interval, bound
from neaptide.symbolic.size_expr import SizeExpr, floordiv, maximum, modulo
from neaptide.symbolic.terms import Atom


def decided(expr: SizeExpr, ranges: Mapping[str, Interval]) -> SizeExpr:
    """The same expression without each `max` of which one side is never the smaller one in the ranges. O(terms).

    >>> T = SizeExpr.dim("T")
    >>> str(decided(maximum(4 * T, 4), {"T": Interval(1)}))
    '4*T'
    """
    total = SizeExpr.const(0)
    for monomial, coefficient in expr.terms():
        term = SizeExpr.const(coefficient)
        for atom, power in monomial:
            factor = _decided(atom, ranges)
            for _ in range(power):
                term = term * factor
        total = total + term
    return total


def _decided(atom: Atom, ranges: Mapping[str, Interval]) -> SizeExpr:
    if not atom.function:
        return SizeExpr.dim(atom.text)
    left, right = decided(atom.left, ranges), decided(atom.right, ranges)
    if atom.function != "max":
        return floordiv(left, right) if atom.function == "floordiv" else modulo(left, right)
    difference = bound(left - right, ranges)
    if difference.low is not None and difference.low >= 0:
        return left
    if difference.high is not None and difference.high <= 0:
        return right
    return maximum(left, right)
