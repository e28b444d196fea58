"""Relations between dims, solved: each dim as an expression over dims that are free of each other.

A relation is a polynomial that is 0. Three steps take dims out, each exact over the integers:

* a dim that stands alone with the coefficient 1 or -1 is what the rest says: `S0 == 12*S1`;
* `mod(e, m) == r`, or `e == m*floordiv(e, m) + r`, makes `e == m*q + r` with a new dim `q`, so that multiples of `m`
  leave floor divisions and modulos without a trace;
* `p*x + q*y + c == 0` makes both dims linear in a new one.

What is left is a fact: an expression that is 0, though no dim could be solved for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import reduce
from math import gcd
from operator import mul

from neaptide.errors import SymbolicError
from neaptide.symbolic.dims import Dim, Relation
from neaptide.symbolic.ranges import Interval, bound
from neaptide.symbolic.size_expr import SizeExpr, floordiv, from_terms, of_atom, scaled_down
from neaptide.symbolic.terms import Atom

_MOST_ROUNDS = 64  # of solving one relation; each takes a dim out or stops


@dataclass(slots=True)
class Solution:
    """Dims of a graph over free dims: what each dim that was taken out is, and the ranges of the others.

    Attributes:
        meanings: of each free dim that was introduced, what it is in the dims that were there before it.
        facts: expressions over free dims that are 0.
        within: expressions over free dims and the interval that holds each: ranges of dims that were taken out.
    """

    images: dict[str, SizeExpr] = field(default_factory=dict)
    ranges: dict[str, Interval] = field(default_factory=dict)
    meanings: dict[str, SizeExpr] = field(default_factory=dict)
    facts: list[SizeExpr] = field(default_factory=list)
    within: list[tuple[SizeExpr, Interval]] = field(default_factory=list)


def solve(dims: Iterable[Dim], relations: Iterable[Relation]) -> Solution:
    """Solve relations one after the other; a dim that only they name is 0 or more. O(relations^2 x terms)."""
    return _Solver(dims, relations).run()


class _Solver:
    def __init__(self, dims: Iterable[Dim], relations: Iterable[Relation]) -> None:
        self.solution = Solution(ranges={dim.name: Interval(dim.low, dim.high) for dim in dims})
        self.rank = {name: number for number, name in enumerate(self.solution.ranges)}
        self.relations = tuple(relations)
        for relation in self.relations:
            for name in sorted(relation.dims()):
                self.solution.ranges.setdefault(name, Interval())
                self.rank.setdefault(name, len(self.rank))

    def run(self) -> Solution:
        for relation in self.relations:
            self.settle(relation.left - relation.right, relation)
        again, self.solution.facts = self.solution.facts, []
        for fact in again:  # a later relation may have made a dim of it solvable
            self.settle(fact, None)
        for _ in range(2):  # a range that one image narrows may narrow another
            for image, interval in self.solution.within:
                self.narrow(image, interval)
        # The range of the one dim that such an image is a multiple of says as much.
        within = self.solution.within
        self.solution.within = [item for item in within if not _is_multiple_of_dim(item[0])]
        return self.solution

    def settle(self, zero: SizeExpr, relation: Relation | None) -> None:
        """Take a dim out by an expression that is 0, or keep it as a fact."""
        for _ in range(_MOST_ROUNDS):
            zero = without_common_factor(zero.substitute(self.solution.images))
            if zero.is_constant:
                if zero.constant_value():
                    raise self.contradiction(str(relation or f"{zero} == 0"))
                return
            if (found := _divisibility(zero)) is not None:
                expr, divisor, rest = found
                quotient = self.introduce(expr, divisor, rest)
                zero = expr - divisor * SizeExpr.dim(quotient) - rest
            elif (solved := self.lone_dim(zero)) is not None:
                self.take_out(*solved)
                return
            elif (line := _line(zero)) is not None:
                self.parametrise(*line)
                return
            else:
                self.solution.facts.append(zero)
                return
        self.solution.facts.append(zero)

    def contradiction(self, what: str) -> SymbolicError:
        return SymbolicError(
            "no shape keeps the relations between its dims",
            where=what,
            why="; ".join(map(str, self.relations)),
            next_step="correct the ranges or the relations",
        )

    def introduce(self, expr: SizeExpr, divisor: int, rest: int) -> str:
        """A new dim for `(expr - rest) / divisor`, with its range."""
        stem = next(iter(expr.dims())) if len(expr.dims()) == 1 else "sum"
        number, name = 0, f"{stem}_by_{divisor}"
        while name in self.rank:
            number += 1
            name = f"{stem}_by_{divisor}_{number}"
        over = bound(expr, self.solution.ranges)
        low = None if over.low is None else -((rest - over.low) // divisor)
        high = None if over.high is None else (over.high - rest) // divisor
        if low is not None and high is not None and low > high:
            raise self.contradiction(f"{expr} == {rest} modulo {divisor}")
        self.rank[name] = len(self.rank)
        self.solution.ranges[name] = Interval(low, high)
        self.solution.meanings[name] = floordiv(expr - rest, SizeExpr.const(divisor))
        return name

    def lone_dim(self, zero: SizeExpr) -> tuple[str, SizeExpr] | None:
        """A dim that is what the rest says, and that; one whose image has no minus if there is one, else the last."""
        best: tuple[tuple[bool, int], str, SizeExpr] | None = None
        for monomial, coefficient in zero.terms():
            if len(monomial) != 1 or monomial[0][1] != 1 or monomial[0][0].function or abs(coefficient) != 1:
                continue
            name = monomial[0][0].text
            rest = zero - coefficient * SizeExpr.dim(name)
            if name in rest.dims():
                continue
            image = -rest if coefficient > 0 else rest
            key = (all(c > 0 for _, c in image.terms()), self.rank[name])
            if best is None or key > best[0]:
                best = key, name, image
        return None if best is None else best[1:]

    def take_out(self, name: str, image: SizeExpr) -> None:
        solution = self.solution
        interval = solution.ranges.pop(name)
        over = bound(image, solution.ranges)
        if _is_apart(interval, over):
            raise self.contradiction(f"{name} in {interval.low}..{interval.high} is {image}")
        by = {name: image}
        solution.images = {dim: expr.substitute(by) for dim, expr in solution.images.items()}
        solution.images[name] = image
        solution.within = [(expr.substitute(by), over) for expr, over in solution.within]
        solution.within.append((image, interval))
        solution.facts = [fact.substitute(by) for fact in solution.facts]

    def parametrise(self, x: str, p: int, y: str, q: int, c: int) -> None:
        """`p*x + q*y + c == 0` with coprime `p` and `q`: `x = x0 + |q|*k`, and `y` follows."""
        step = abs(q)
        start = (-c * pow(p, -1, step)) % step
        expr = SizeExpr.dim(x)
        name = self.introduce(expr, step, start)
        image = start + step * SizeExpr.dim(name)
        self.take_out(x, image)
        rest = -(p * image + c)
        self.take_out(y, scaled_down(rest, q))

    def narrow(self, image: SizeExpr, interval: Interval) -> None:
        """Narrow the range of a dim by the interval that holds a multiple of it."""
        terms = [(monomial, c) for monomial, c in image.terms() if monomial]
        if len(terms) != 1 or any(atom.function or power > 1 for atom, power in terms[0][0]):
            return
        monomial, coefficient = terms[0]
        constant = (image - from_terms(tuple(terms))).constant_value()
        sign, size = (1, coefficient) if coefficient > 0 else (-1, -coefficient)
        moved = (interval + Interval(-constant, -constant)) * Interval(sign, sign)
        low = None if moved.low is None else -(-moved.low // size)
        high = None if moved.high is None else moved.high // size
        ranges = self.solution.ranges
        for atom, _ in monomial:
            others = [ranges[other.text] for other, _ in monomial if other != atom]
            if any(over.low is None or over.low < 0 for over in (*others, ranges[atom.text])):
                return
            rest = reduce(mul, others, Interval(1, 1))
            own_low = 0 if low is None or low <= 0 or not rest.high else -(-low // rest.high)
            own_high = None if high is None or not rest.low else high // rest.low
            now = ranges[atom.text]
            if _is_apart(now, Interval(own_low, None)) or (
                own_high is not None and own_high < (now.low or 0)
            ):
                raise self.contradiction(f"{image} in {interval.low}..{interval.high}")
            ranges[atom.text] = now.meet(Interval(own_low, own_high))


def _is_multiple_of_dim(image: SizeExpr) -> bool:
    terms = [monomial for monomial, _ in image.terms() if monomial]
    return len(terms) == 1 and len(terms[0]) == 1 and terms[0][0][1] == 1 and not terms[0][0][0].function


def _is_apart(a: Interval, b: Interval) -> bool:
    return (a.high is not None and b.low is not None and a.high < b.low) or (
        b.high is not None and a.low is not None and b.high < a.low
    )


def without_common_factor(zero: SizeExpr) -> SizeExpr:
    """What is 0 where and only where `zero` is: divided by what divides its coefficients; 1 where it is never 0."""
    common = gcd(*(coefficient for monomial, coefficient in zero.terms() if monomial))
    if common <= 1:
        return zero
    if any(coefficient % common for _, coefficient in zero.terms()):
        return SizeExpr.const(1)
    return scaled_down(zero, common)


def _divisibility(zero: SizeExpr) -> tuple[SizeExpr, int, int] | None:
    """`e, m, r` with `e == m*floordiv(e, m) + r`, where an expression that is 0 says no more than that."""
    for atom, coefficient in _lone_opaque(zero):
        if not atom.right.is_constant or (divisor := atom.right.constant_value()) <= 1:
            continue
        term = coefficient * of_atom(atom)
        if atom.function == "mod" and abs(coefficient) == 1:
            rest = -coefficient * (zero - term)
        elif atom.function == "floordiv" and abs(coefficient) == divisor:
            sign = -coefficient // divisor  # zero == sign*(e - m*floor(e, m) - r)
            rest = atom.left - sign * (zero - term)
        else:
            continue
        if rest.is_constant and 0 <= rest.constant_value() < divisor:
            return atom.left, divisor, rest.constant_value()
    return None


def _lone_opaque(expr: SizeExpr) -> Iterator[tuple[Atom, int]]:
    for monomial, coefficient in expr.terms():
        if len(monomial) == 1 and monomial[0][1] == 1 and monomial[0][0].function:
            yield monomial[0][0], coefficient


def _line(zero: SizeExpr) -> tuple[str, int, str, int, int] | None:
    """`x, p, y, q, c` where an expression that is 0 reads `p*x + q*y + c`, with coprime `p` and `q`."""
    terms = zero.terms()
    constant = terms[-1][1] if not terms[-1][0] else 0
    linear = [(monomial, c) for monomial, c in terms if monomial]
    if len(linear) != 2 or any(
        len(monomial) != 1 or monomial[0][1] != 1 or monomial[0][0].function for monomial, _ in linear
    ):
        return None
    (first, p), (second, q) = linear
    if gcd(p, q) != 1:
        return None
    return first[0][0].text, p, second[0][0].text, q, constant
