"""Atoms, monomials and terms: the canonical parts that a size expression is made of."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from neaptide.symbolic.size_expr import SizeExpr


class Atom:
    """A dimension, or `floordiv`, `mod` or `max` of two expressions as an opaque term. Its text identifies it."""

    __slots__ = ("arguments", "function", "text")

    def __init__(self, text: str, function: str = "", arguments: tuple[SizeExpr, ...] = ()) -> None:
        self.text = text
        self.function = function
        self.arguments = arguments

    @classmethod
    def of(cls, function: str, left: SizeExpr, right: SizeExpr) -> Atom:
        """The opaque term `function(left, right)`."""
        return cls(f"{function}({left}, {right})", function, (left, right))

    @property
    def left(self) -> SizeExpr:
        """First argument."""
        return self.arguments[0]

    @property
    def right(self) -> SizeExpr:
        """Second argument."""
        return self.arguments[1]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Atom) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return self.text


Monomial: TypeAlias = tuple[tuple[Atom, int], ...]
"""Atoms with their powers, sorted by text; empty for the constant term."""

Terms: TypeAlias = tuple[tuple[Monomial, int], ...]
"""Monomials with their coefficients (never 0), sorted by `term_order`."""


def term_order(term: tuple[Monomial, int]) -> tuple[int, tuple[tuple[str, int], ...]]:
    """Sort key: higher degree first, then by the text of the atoms."""
    monomial = term[0]
    return -sum(power for _, power in monomial), tuple((atom.text, -power) for atom, power in monomial)


def add_terms(left: Terms, right: Iterable[tuple[Monomial, int]]) -> Terms:
    """Sum of two polynomials."""
    total = dict(left)
    for monomial, coefficient in right:
        total[monomial] = total.get(monomial, 0) + coefficient
    return canonical(total)


def multiply_terms(left: Terms, right: Terms) -> Terms:
    """Product of two polynomials."""
    total: dict[Monomial, int] = {}
    for a, p in left:
        for b, q in right:
            monomial = multiply_monomials(a, b)
            total[monomial] = total.get(monomial, 0) + p * q
    return canonical(total)


def canonical(total: dict[Monomial, int]) -> Terms:
    """Sorted terms without zeros."""
    return tuple(sorted(((m, c) for m, c in total.items() if c), key=term_order))


def multiply_monomials(left: Monomial, right: Monomial) -> Monomial:
    """Product of two monomials."""
    if not left:
        return right
    if not right:
        return left
    powers = dict(left)
    for atom, power in right:
        powers[atom] = powers.get(atom, 0) + power
    return tuple(sorted(powers.items(), key=lambda item: item[0].text))


def without(monomial: Monomial, divisor: Monomial) -> Monomial | None:
    """`monomial / divisor`; None when the divisor does not divide it."""
    if not divisor:
        return monomial
    powers = dict(monomial)
    for atom, power in divisor:
        left = powers.get(atom, 0) - power
        if left < 0:
            return None
        if left:
            powers[atom] = left
        else:
            del powers[atom]
    return tuple(powers.items())


def render_terms(terms: Terms) -> str:
    """Text such as `4*B*T - 12*floordiv(T, 2) + 1`."""
    pieces: list[str] = []
    for monomial, coefficient in terms:
        factors = [atom.text if power == 1 else f"{atom.text}**{power}" for atom, power in monomial]
        size = abs(coefficient)
        if size != 1 or not factors:
            factors.insert(0, str(size))
        body = "*".join(factors)
        if pieces:
            pieces.append(f"{'-' if coefficient < 0 else '+'} {body}")
        else:
            pieces.append(f"-{body}" if coefficient < 0 else body)
    return " ".join(pieces)
