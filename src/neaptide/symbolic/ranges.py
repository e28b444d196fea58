"""Bounds of size expressions over ranges of their dimensions.

The algebra is best effort: every bound is proved, and may be wide. What is tried, in order: interval arithmetic; the same after
shifting each dimension to its lower end, so that `B*T - B` with `T >= 1` is seen to be no less than 0; the corners of a
finite box, exact for an expression that is linear in each dimension; and, for opaque terms, the rational relaxation
`(x - y + 1)/y <= floordiv(x, y) <= x/y` and both cases of a `max`. `symbolic.relations` compares by them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice, product
from typing import TypeAlias

from neaptide.errors import SymbolicError
from neaptide.symbolic.size_expr import FUNCTIONS, SizeExpr, from_terms, of_atom
from neaptide.symbolic.terms import Atom, Monomial

_MOST_CORNERS = 256
_MOST_OPAQUE = 4  # opaque terms relaxed at one level
_DEEPEST = 4  # nested relaxations and case splits


@dataclass(frozen=True, slots=True)
class Interval:
    """Integers from `low` to `high`, both included; None means without end."""

    low: int | None = 0
    high: int | None = None

    def __post_init__(self) -> None:
        if self.low is not None and self.high is not None and self.low > self.high:
            raise SymbolicError(
                f"empty range {self.low}..{self.high}", why="the lower end is above the upper end"
            )

    def __contains__(self, number: int) -> bool:
        return (self.low is None or number >= self.low) and (self.high is None or number <= self.high)

    def __add__(self, other: Interval) -> Interval:
        return Interval(
            None if self.low is None or other.low is None else self.low + other.low,
            None if self.high is None or other.high is None else self.high + other.high,
        )

    def __mul__(self, other: Interval) -> Interval:
        ends = [_end_product(a, b) for a in _ends(self) for b in _ends(other)]
        return _interval(min(ends), max(ends))

    def hull(self, other: Interval) -> Interval:
        """The smallest interval that holds both."""
        return _interval(
            min(_ends(self)[0], _ends(other)[0]),
            max(_ends(self)[1], _ends(other)[1]),
        )

    def meet(self, other: Interval) -> Interval:
        """What both hold; both must be bounds of one expression, so it is never empty."""
        return _interval(
            max(_ends(self)[0], _ends(other)[0]),
            min(_ends(self)[1], _ends(other)[1]),
        )


EVERYTHING = Interval(None, None)
_INFINITY = float("inf")
_End: TypeAlias = int | float  # an exact int, or plus or minus infinity


def _ends(interval: Interval) -> tuple[_End, _End]:
    return (
        -_INFINITY if interval.low is None else interval.low,
        _INFINITY if interval.high is None else interval.high,
    )


def _interval(low: _End, high: _End) -> Interval:
    return Interval(low if isinstance(low, int) else None, high if isinstance(high, int) else None)


def _end_product(a: _End, b: _End) -> _End:
    if a == 0 or b == 0:
        return 0
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    return _INFINITY if (a > 0) == (b > 0) else -_INFINITY


def bound(expr: SizeExpr, ranges: Mapping[str, Interval], depth: int = _DEEPEST) -> Interval:
    """An interval that surely holds the expression; a dimension without a range is taken as 0 or more.

    Exact for constants and, over a finite box of few dimensions, for expressions linear in each dimension. `depth` is of
    nested relaxations and case splits of opaque terms; each may double the work.
    """
    if expr.is_constant:
        number = expr.constant_value()
        return Interval(number, number)
    if (exact := _corners(expr, ranges)) is not None:
        return exact
    result = _term_by_term(expr, ranges, depth).meet(_shifted(expr, ranges, depth))
    if depth:
        for atom in islice(_opaque_atoms(expr), _MOST_OPAQUE):
            if atom.function == "floordiv":
                result = result.meet(_relaxed(expr, atom, ranges, depth - 1))
            elif atom.function == "max":
                cases = [bound(_replaced(expr, atom, side), ranges, depth - 1) for side in atom.arguments]
                result = result.meet(cases[0].hull(cases[1])).meet(
                    _one_sided_max(expr, atom, cases, ranges, depth - 1)
                )
    return result


def _corners(expr: SizeExpr, ranges: Mapping[str, Interval]) -> Interval | None:
    if any(atom.function or power > 1 for monomial, _ in expr.terms() for atom, power in monomial):
        return None
    names = sorted(expr.dims())
    boxes = [ranges.get(name, Interval()) for name in names]
    if 2 ** len(names) > _MOST_CORNERS:
        return None
    ends = [(box.low, box.high) for box in boxes if box.low is not None and box.high is not None]
    if len(ends) < len(names):
        return None
    numbers = [expr.evaluate(dict(zip(names, corner, strict=True))) for corner in product(*ends)]
    return Interval(min(numbers), max(numbers))


def _term_by_term(expr: SizeExpr, ranges: Mapping[str, Interval], depth: int) -> Interval:
    total = Interval(0, 0)
    for monomial, coefficient in expr.terms():
        term = Interval(coefficient, coefficient)
        for atom, power in monomial:
            term = term * _power(_atom_bound(atom, ranges, depth), power)
        total = total + term
    return total


def _power(base: Interval, power: int) -> Interval:
    result = base
    for _ in range(power - 1):
        result = result * base
    if power % 2 == 0 and result.low != 0 and (result.low is None or result.low < 0):
        result = _interval(0, _ends(result)[1])
    return result


def _atom_bound(atom: Atom, ranges: Mapping[str, Interval], depth: int) -> Interval:
    if not atom.function:
        return ranges.get(atom.text, Interval())
    if not depth:
        return EVERYTHING
    left, right = (bound(argument, ranges, depth - 1) for argument in atom.arguments)
    if atom.function == "max":
        return _interval(max(_ends(left)[0], _ends(right)[0]), max(_ends(left)[1], _ends(right)[1]))
    if right.low is None or right.low < 1:
        return EVERYTHING
    if atom.function == "mod":
        if left.low is not None and left.low >= 0:
            gap = bound(atom.right - atom.left, ranges, depth - 1)
            if gap.low is not None and gap.low >= 1:  # what is smaller than the divisor is its own remainder
                return left
        top = None if right.high is None else right.high - 1
        if left.low is not None and left.low >= 0 and left.high is not None:
            top = left.high if top is None else min(top, left.high)
        return Interval(0, top)
    quotients = [_end_quotient(x, y) for x in _ends(left) for y in _ends(right)]
    return _interval(min(quotients), max(quotients))


def _end_quotient(x: _End, y: _End) -> _End:
    if isinstance(x, int):
        return x // y if isinstance(y, int) else (0 if x >= 0 else -1)
    return x


def _shifted(expr: SizeExpr, ranges: Mapping[str, Interval], depth: int) -> Interval:
    """Bound after writing each dimension as its lower end plus what is left, which is 0 or more."""
    lows = {name: ranges.get(name, Interval()).low for name in expr.dims()}
    moves = {name: SizeExpr.dim(name) + low for name, low in lows.items() if low}
    if not moves:
        return EVERYTHING
    moved = from_terms(()) + expr.substitute(moves)
    there = {
        name: Interval(0, None if (high := ranges.get(name, Interval()).high) is None else high - low)
        for name, low in lows.items()
        if low is not None
    }
    return _term_by_term(moved, {**ranges, **there}, depth)


def _opaque_atoms(expr: SizeExpr) -> Iterable[Atom]:
    return dict.fromkeys(atom for monomial, _ in expr.terms() for atom, _ in monomial if atom.function)


def _replaced(expr: SizeExpr, atom: Atom, by: SizeExpr) -> SizeExpr:
    """Replace an atom at the top level of an expression."""
    total = SizeExpr.const(0)
    for monomial, coefficient in expr.terms():
        power = dict(monomial).get(atom, 0)
        term = _rest(monomial, coefficient, atom)
        for _ in range(power):
            term = term * by
        total = total + term
    return total


def _rest(monomial: Monomial, coefficient: int, atom: Atom) -> SizeExpr:
    return from_terms(((tuple(pair for pair in monomial if pair[0] != atom), coefficient),))


def _slope(expr: SizeExpr, atom: Atom) -> tuple[SizeExpr, SizeExpr] | None:
    """`s, r` with `expr == s*atom + r`; None when the atom appears in a higher power."""
    slope, rest = SizeExpr.const(0), SizeExpr.const(0)
    for monomial, coefficient in expr.terms():
        power = dict(monomial).get(atom, 0)
        if power > 1:
            return None
        if power:
            slope = slope + _rest(monomial, coefficient, atom)
        else:
            rest = rest + from_terms(((monomial, coefficient),))
    return slope, rest


def _sign(expr: SizeExpr, ranges: Mapping[str, Interval], depth: int) -> int:
    over = bound(expr, ranges, depth)
    if over.low is not None and over.low >= 0:
        return 1
    return -1 if over.high is not None and over.high <= 0 else 0


def _relaxed(expr: SizeExpr, atom: Atom, ranges: Mapping[str, Interval], depth: int) -> Interval:
    """Bound by `(x - d + 1)/d <= floordiv(x, d) <= x/d`, for a constant divisor, multiplied through by `d`."""
    if not atom.right.is_constant or (parts := _slope(expr, atom)) is None:
        return EVERYTHING
    slope, rest = parts
    divisor = atom.right.constant_value()
    if (sign := _sign(slope, ranges, depth)) == 0:
        return EVERYTHING
    least, most = atom.left - (divisor - 1), atom.left
    if sign < 0:
        least, most = most, least
    low = bound(slope * least + rest * divisor, ranges, depth).low
    high = bound(slope * most + rest * divisor, ranges, depth).high
    return Interval(None if low is None else -(-low // divisor), None if high is None else high // divisor)


def _one_sided_max(
    expr: SizeExpr, atom: Atom, cases: list[Interval], ranges: Mapping[str, Interval], depth: int
) -> Interval:
    """`s*max(x, y) + r` is at least both cases when `s >= 0`, and at most both when `s <= 0`."""
    if (parts := _slope(expr, atom)) is None or (sign := _sign(parts[0], ranges, depth)) == 0:
        return EVERYTHING
    if sign > 0:
        return _interval(max(_ends(case)[0] for case in cases), _INFINITY)
    return _interval(-_INFINITY, min(_ends(case)[1] for case in cases))


def decided(expr: SizeExpr, ranges: Mapping[str, Interval]) -> SizeExpr:
    """The same expression without each `max` of which one side is never the smaller one in the ranges. O(terms).

    >>> from neaptide.symbolic.size_expr import maximum
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
        return of_atom(atom)
    left, right = decided(atom.left, ranges), decided(atom.right, ranges)
    if atom.function == "max":
        difference = bound(left - right, ranges)
        if difference.low is not None and difference.low >= 0:
            return left
        if difference.high is not None and difference.high <= 0:
            return right
    return FUNCTIONS[atom.function](left, right)
