"""Monomials as numbers: what sizes are made of once relations are substituted and ranges begin at 0.

Every free dim is its lower end plus a dim that is 0 or more. In that form most comparisons are decided by the signs of
coefficients: `B*T - B` over `T >= 1` reads `B*t`. A monomial gets a number when it is first seen, with its interval and
its values at a few sample shapes, so that later work is on numbers alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product
from math import inf
from typing import Final

from neaptide.symbolic.ranges import Interval, bound
from neaptide.symbolic.size_expr import SizeExpr, from_terms
from neaptide.symbolic.solving import Solution
from neaptide.symbolic.terms import Monomial

_FAR: Final = (1, 37, 2048)  # how far samples go above the lower end of a range without end
_BETWEEN: Final = 6  # sample shapes beside the corners
_TRIES: Final = 96  # for them
_MOST_SAMPLES: Final = 24
_MOST_CORNERS: Final = 16
_STEPS: Final = 97  # a prime: the parts of ranges that tries stand at do not repeat

CONSTANT: Final = 0  # number of the monomial without dims


class Basis:
    """Monomials over free dims that begin at 0, by number.

    Attributes:
        begin: of each free dim with another lower end than 0, what it is there; `ends` is the inverse.
        images: of each dim of the graph, what it is there.
        lows, highs: by monomial, ends of an interval that holds it; infinite where there is none.
        values: by sample shape (`points`), the numbers of the monomials there.
        has_origin: whether a size is its constant at the first sample shape: every dim is 0 there, and every opaque term.
        has_corners: whether all corners of a finite box are among them, and nothing but the box limits shapes.
        is_smooth: by monomial, whether it is linear in each dim and has no opaque term.
    """

    def __init__(self, solution: Solution, names: Iterable[str]) -> None:
        lows = {name: interval.low or 0 for name, interval in solution.ranges.items()}
        begin = {name: SizeExpr.dim(name) + low for name, low in lows.items() if low}
        self.begin: Mapping[str, SizeExpr] = begin
        self.ends: Mapping[str, SizeExpr] = {name: SizeExpr.dim(name) - lows[name] for name in begin}
        self.images = {
            name: solution.images.get(name, SizeExpr.dim(name)).substitute(begin)
            for name in {*names, *solution.ranges}
        }
        self.ranges = {
            name: Interval(
                None if interval.low is None else 0,
                None if interval.high is None else interval.high - lows[name],
            )
            for name, interval in solution.ranges.items()
        }
        corners = _corners(self.ranges)
        self.points = _samples(self.ranges, solution, begin, corners)
        self.has_origin = bool(self.points) and not any(self.points[0].values())
        self.has_corners = bool(corners) and not solution.facts and not solution.within
        self._monomials: list[Monomial] = []
        self._number: dict[Monomial, int] = {}
        self._outside: dict[Monomial, tuple[tuple[int, int], ...]] = {}
        self.lows: list[int | float] = []
        self.highs: list[int | float] = []
        self.values: tuple[list[int], ...] = tuple([] for _ in self.points)
        self.is_smooth: list[bool] = []
        self.is_opaque: list[bool] = []
        self._of(())

    def coefficients(self, expr: SizeExpr) -> dict[int, int]:
        """Coefficients by monomial, of an expression over dims of the graph. O(terms), once its monomials are known."""
        total: dict[int, int] = {}
        for monomial, coefficient in expr.terms():
            image = self._outside.get(monomial)
            if image is None:
                inside = from_terms(((monomial, 1),)).substitute(self.images)
                image = self._outside[monomial] = tuple((self._of(m), c) for m, c in inside.terms())
            for number, times in image:
                total[number] = total.get(number, 0) + coefficient * times
        return {number: coefficient for number, coefficient in total.items() if coefficient}

    def expression(self, coefficients: Mapping[int, int]) -> SizeExpr:
        """The expression over free dims that begin at 0."""
        total = SizeExpr.const(0)
        for number, coefficient in coefficients.items():
            total = total + from_terms(((self._monomials[number], 1),)) * coefficient
        return total

    def _of(self, monomial: Monomial) -> int:
        number = self._number.get(monomial)
        if number is None:
            number = self._number[monomial] = len(self._monomials)
            self._monomials.append(monomial)
            expr = from_terms(((monomial, 1),))
            over = bound(expr, self.ranges)
            self.lows.append(-inf if over.low is None else over.low)
            self.highs.append(inf if over.high is None else over.high)
            for point, values in zip(self.points, self.values, strict=True):
                values.append(expr.evaluate(point))
            if monomial and self.points and self.values[0][-1]:
                self.has_origin = False
            self.is_opaque.append(any(atom.function for atom, _ in monomial))
            self.is_smooth.append(not any(atom.function or power > 1 for atom, power in monomial))
        return number


def _corners(ranges: Mapping[str, Interval]) -> list[dict[str, int]]:
    """All corners of a finite box of few dims; else none."""
    ends = [
        (over.low, over.high) for over in ranges.values() if over.low is not None and over.high is not None
    ]
    if len(ends) < len(ranges) or 2 ** len(ends) > _MOST_CORNERS:
        return []
    return [dict(zip(ranges, corner, strict=True)) for corner in product(*ends)]


def _samples(
    ranges: Mapping[str, Interval],
    solution: Solution,
    begin: Mapping[str, SizeExpr],
    corners: list[dict[str, int]],
) -> tuple[dict[str, int], ...]:
    """Shapes that the ranges and relations allow: corners, one dim at its other end, and a few between."""
    names = list(ranges)
    lows = {name: 0 if ranges[name].low is not None else -_FAR[0] for name in names}
    tries = [*corners, lows]
    for far in _FAR:
        highs = {name: far if (high := ranges[name].high) is None else high for name in names}
        tries.append(highs)
        tries += [{**lows, name: highs[name]} for name in names]
        tries += [{**highs, name: lows[name]} for name in names]
        if all(ranges[name].high is not None for name in names):
            break
    first = len(tries)
    for number in range(1, _TRIES + 1):
        point = {}
        for place, name in enumerate(names):
            high = ranges[name].high
            width = (_FAR[-1] if high is None else high) - lows[name]
            part = number * (2 * place + 5) % _STEPS  # of the range, or of its number of digits
            size = width * part // _STEPS if number % 2 else 1 << (width.bit_length() * part // _STEPS)
            point[name] = lows[name] + min(size, width)
        tries.append(point)
    within = [(expr.substitute(begin), interval) for expr, interval in solution.within]
    facts = [fact.substitute(begin) for fact in solution.facts]
    found: dict[tuple[int, ...], dict[str, int]] = {}
    for number, point in enumerate(tries):
        is_full = len(found) >= (_MOST_SAMPLES - _BETWEEN if number < first else _MOST_SAMPLES)
        if is_full or any(fact.evaluate(point) for fact in facts):
            continue
        if all(expr.evaluate(point) in interval for expr, interval in within):
            found[tuple(point.values())] = point
    return tuple(found.values())
