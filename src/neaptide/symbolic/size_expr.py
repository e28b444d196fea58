"""SizeExpr: exact sizes over named dimensions. The one number type of shapes, bytes and trip counts.

An expression is a polynomial with integer coefficients of any sign over atoms. An atom is a named dimension or an
opaque term `floordiv(x, y)`, `mod(x, y)` or `max(x, y)`. The form is canonical: terms are sorted, equal monomials are
joined, and multiples of a divisor are pulled out of `floordiv` and `mod`, so equality is structural and two
expressions that print alike are equal.
"""

# ruff: noqa: SLF001 - the functions below the class are part of its implementation

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Iterable, Mapping
from math import gcd

from neaptide.errors import SymbolicError
from neaptide.symbolic.terms import Atom, Monomial, Terms, add_terms, multiply_terms, render_terms, without

_RESERVED = frozenset({"floordiv", "mod", "max"})
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MOST_CACHED = 1 << 17  # a step has a few hundred distinct sizes; the cap only guards against a runaway


class SizeExpr:
    """An exact integer expression over named dimensions. Immutable and hashable.

    Arithmetic follows Python's integers (`//` and `%` round towards minus infinity). Constants take a fast path. An
    expression never equals a plain int: compare `constant_value()` with one.

    >>> B, T = SizeExpr.dim("B"), SizeExpr.dim("T")
    >>> str(4 * B * T + 12 * (T // 2))
    '4*B*T + 12*floordiv(T, 2)'
    >>> (4 * B * T).evaluate({"B": 2, "T": 8})
    64
    """

    __slots__ = ("_hash", "_terms", "_text", "_value")

    _value: int | None  # the number, for a constant
    _terms: Terms  # canonical terms; for a constant, empty (the number says all)
    _hash: int | None
    _text: str | None

    def __init__(self) -> None:
        raise TypeError("use SizeExpr.const, SizeExpr.dim or parse_size_expr")

    @staticmethod
    def const(number: int) -> SizeExpr:
        """A constant. Small and recurring numbers share one object."""
        found = _CONSTANTS.get(number)
        if found is not None:
            return found
        exact = int(number)
        made = _new(exact, ())
        if len(_CONSTANTS) < _MOST_CACHED:
            _CONSTANTS[exact] = made
        return made

    @staticmethod
    def dim(name: str) -> SizeExpr:
        """A named dimension. A name must be an ASCII identifier, and no function or keyword of Python."""
        if not _NAME.fullmatch(name) or name in _RESERVED or keyword.iskeyword(name):
            raise SymbolicError(
                f"{name!r} cannot name a dimension",
                why="it must be an identifier, and no function or keyword",
            )
        return of_atom(Atom(name))

    @property
    def is_constant(self) -> bool:
        """Whether it names no dimension."""
        return self._value is not None

    def constant_value(self) -> int:
        """The number; an error where the expression names dimensions."""
        if self._value is None:
            raise SymbolicError(
                f"{self} is no constant",
                why=f"it depends on {', '.join(sorted(self.dims()))}",
                next_step="evaluate it with a value for each dimension",
            )
        return self._value

    def dims(self) -> frozenset[str]:
        """Names of the dimensions that it depends on."""
        found: set[str] = set()
        for monomial, _ in self._terms:
            for atom, _ in monomial:
                if atom.function:
                    found.update(atom.left.dims(), atom.right.dims())
                else:
                    found.add(atom.text)
        return frozenset(found)

    def terms(self) -> Terms:
        """Canonical terms `((atom, power), ...), coefficient`, largest degree first; the constant has no atoms."""
        if self._value is None:
            return self._terms
        return (((), self._value),) if self._value else ()

    def evaluate(self, binding: Mapping[str, int] | None = None) -> int:
        """The number for given dimensions; an error where one is missing, or a divisor is zero."""
        if self._value is not None:
            return self._value
        numbers = binding or {}
        missing = sorted(self.dims().difference(numbers))
        if missing:
            raise SymbolicError(
                f"no value for {', '.join(missing)}",
                where=str(self),
                next_step="bind every dimension to a number",
            )
        return _evaluate(self, numbers)

    def substitute(self, mapping: Mapping[str, SizeExpr | int]) -> SizeExpr:
        """The expression with some dimensions replaced, all at once."""
        if self._value is not None or not mapping:
            return self
        replaced = {name: _coerce(expr) for name, expr in mapping.items()}
        return self.map_atoms(lambda atom: replaced.get(atom.text, of_atom(atom)))

    def map_atoms(self, image: Callable[[Atom], SizeExpr]) -> SizeExpr:
        """Rebuild with every dimension atom replaced by its image, inside opaque terms as well."""
        total = _ZERO
        for monomial, coefficient in self.terms():
            product = SizeExpr.const(coefficient)
            for atom, power in monomial:
                if atom.function:
                    factor = FUNCTIONS[atom.function](atom.left.map_atoms(image), atom.right.map_atoms(image))
                else:
                    factor = image(atom)
                for _ in range(power):
                    product = product * factor
            total = total + product
        return total

    def __add__(self, other: SizeExpr | int) -> SizeExpr:
        if other.__class__ is not SizeExpr:
            other = _coerce(other)
        a, b = self._value, other._value
        if a is not None and b is not None:
            return SizeExpr.const(a + b)
        if a == 0:
            return other
        if b == 0:
            return self
        return from_terms(add_terms(self.terms(), other.terms()))

    def __mul__(self, other: SizeExpr | int) -> SizeExpr:
        if other.__class__ is not SizeExpr:
            other = _coerce(other)
        a, b = self._value, other._value
        if a is not None and b is not None:
            return SizeExpr.const(a * b)
        if a == 1:
            return other
        if b == 1:
            return self
        return from_terms(multiply_terms(self.terms(), other.terms()))

    def __neg__(self) -> SizeExpr:
        if self._value is not None:
            return SizeExpr.const(-self._value)
        return _new(None, tuple((monomial, -coefficient) for monomial, coefficient in self._terms))

    def __sub__(self, other: SizeExpr | int) -> SizeExpr:
        return self + (-other)

    def __rsub__(self, other: int) -> SizeExpr:
        return -self + other

    def __floordiv__(self, other: SizeExpr | int) -> SizeExpr:
        return floordiv(self, _coerce(other))

    def __rfloordiv__(self, other: int) -> SizeExpr:
        return floordiv(_coerce(other), self)

    def __mod__(self, other: SizeExpr | int) -> SizeExpr:
        return modulo(self, _coerce(other))

    def __rmod__(self, other: int) -> SizeExpr:
        return modulo(_coerce(other), self)

    __radd__ = __add__
    __rmul__ = __mul__

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, SizeExpr):
            return NotImplemented
        return self._value == other._value and self._terms == other._terms

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash((self._value, self._terms))
        return self._hash

    def __str__(self) -> str:
        if self._text is None:
            self._text = str(self._value) if self._value is not None else render_terms(self._terms)
        return self._text

    def __repr__(self) -> str:
        return f"SizeExpr({str(self)!r})"

    def __copy__(self) -> SizeExpr:
        return self

    def __deepcopy__(self, _memo: object) -> SizeExpr:
        return self

    def __reduce__(self) -> tuple[Callable[..., SizeExpr], tuple[int | None, Terms]]:
        return _new, (self._value, self._terms)  # a cached hash must not travel between processes


def _new(value: int | None, terms: Terms) -> SizeExpr:
    made = object.__new__(SizeExpr)
    made._value = value
    made._terms = terms
    made._hash = None
    made._text = None
    return made


_CONSTANTS: dict[int, SizeExpr] = {}
_ZERO = SizeExpr.const(0)
_ONE = SizeExpr.const(1)


def _coerce(number: SizeExpr | int) -> SizeExpr:
    if isinstance(number, SizeExpr):
        return number
    if isinstance(number, int):
        return SizeExpr.const(number)
    raise TypeError(f"a size expression takes ints and size expressions, not {type(number).__name__}")


def of_atom(atom: Atom) -> SizeExpr:
    """The expression that is one atom."""
    return _new(None, ((((atom, 1),), 1),))


def from_terms(terms: Terms) -> SizeExpr:
    """The expression with these canonical terms."""
    if not terms:
        return _ZERO
    if len(terms) == 1 and not terms[0][0]:
        return SizeExpr.const(terms[0][1])
    return _new(None, terms)


def _evaluate(expr: SizeExpr, binding: Mapping[str, int]) -> int:
    total = 0
    for monomial, coefficient in expr.terms():
        product = coefficient
        for atom, power in monomial:
            if not atom.function:
                factor = binding[atom.text]
            else:
                left, right = _evaluate(atom.left, binding), _evaluate(atom.right, binding)
                if atom.function == "max":
                    factor = max(left, right)
                elif right == 0:
                    raise SymbolicError("division by zero in a size expression", where=str(expr))
                else:
                    factor = left // right if atom.function == "floordiv" else left % right
            product *= factor**power
        total += product
    return total


def _split(x: SizeExpr, y: SizeExpr) -> tuple[SizeExpr, SizeExpr]:
    """`q, r` with `x == q*y + r`, where every term of `x` that is a multiple of the one term of `y` goes to `q`."""
    terms = y.terms()
    if len(terms) != 1:
        if x == y:
            return _ONE, _ZERO
        return _ZERO, x
    divisor, unit = terms[0]
    whole: list[tuple[Monomial, int]] = []
    rest: list[tuple[Monomial, int]] = []
    for monomial, coefficient in x.terms():
        quotient = without(monomial, divisor)
        if quotient is None:
            rest.append((monomial, coefficient))
            continue
        times, remainder = divmod(coefficient, unit)
        if times:
            whole.append((quotient, times))
        if remainder:
            rest.append((monomial, remainder))
    return from_terms(add_terms((), whole)), from_terms(tuple(rest))


def scaled_down(x: SizeExpr, by: int) -> SizeExpr:
    """The expression with each coefficient divided by a number, rounded down."""
    scaled = ((monomial, coefficient // by) for monomial, coefficient in x.terms())
    return from_terms(tuple(term for term in scaled if term[1]))  # a constant below `by` becomes 0


def _content(terms: Iterable[tuple[Monomial, int]]) -> int:
    return gcd(*(coefficient for _, coefficient in terms))


def _checked_divisor(x: SizeExpr, y: SizeExpr) -> None:
    if y._value == 0:
        raise SymbolicError("division by zero in a size expression", where=str(x))


def _common_factor(x: SizeExpr, y: SizeExpr) -> int:
    """What divides `y` and `x`, whose constant may be rounded down where `y` is one."""
    terms = x.terms() if y._value is None else [term for term in x.terms() if term[0]]
    return gcd(_content(terms), _content(y.terms()))


def floordiv(x: SizeExpr, y: SizeExpr) -> SizeExpr:
    """`x // y`, rounded towards minus infinity. Multiples of `y` are pulled out, common factors cancelled."""
    _checked_divisor(x, y)
    if x._value is not None and y._value is not None:
        return SizeExpr.const(x._value // y._value)
    if y.terms()[0][1] < 0:
        return floordiv(-x, -y)
    quotient, rest = _split(x, y)
    if quotient._value != 0:
        return quotient + floordiv(rest, y)
    if rest._value == 0:
        return _ZERO
    # floor((g*p + c) / (g*d)) = floor((p + floor(c/g)) / d) for integer p
    if (common := _common_factor(x, y)) > 1:
        return floordiv(scaled_down(x, common), scaled_down(y, common))
    return of_atom(Atom.of("floordiv", x, y))


def modulo(x: SizeExpr, y: SizeExpr) -> SizeExpr:
    """`x % y`, with the sign of `y`. Multiples of `y` drop out, common factors come out in front."""
    _checked_divisor(x, y)
    if x._value is not None and y._value is not None:
        return SizeExpr.const(x._value % y._value)
    if y.terms()[0][1] < 0:
        return -modulo(-x, -y)
    quotient, rest = _split(x, y)
    if quotient._value != 0:
        return modulo(rest, y)
    if rest._value == 0:
        return _ZERO
    # (g*p + g*c1 + c0) mod (g*d) = g*((p + c1) mod d) + c0 for 0 <= c0 < g
    if (common := _common_factor(x, y)) > 1:
        left_over = sum(c for monomial, c in x.terms() if not monomial) % common
        return common * modulo(scaled_down(x - left_over, common), scaled_down(y, common)) + left_over
    return of_atom(Atom.of("mod", x, y))


def maximum(a: SizeExpr | int, b: SizeExpr | int) -> SizeExpr:
    """The larger of two expressions, folded when their difference is a constant."""
    x, y = _coerce(a), _coerce(b)
    if x._value is not None and y._value is not None:
        return x if x._value >= y._value else y
    difference = (x - y)._value
    if difference is not None:
        return x if difference >= 0 else y
    first, second = sorted((x, y), key=str)
    for outer, inner in ((first, second), (second, first)):
        if outer in _arguments_of_max(inner):
            return inner
    return of_atom(Atom.of("max", first, second))


def _arguments_of_max(expr: SizeExpr) -> tuple[SizeExpr, ...]:
    if len(expr._terms) == 1 and expr._terms[0][1] == 1 and len(expr._terms[0][0]) == 1:
        atom, power = expr._terms[0][0][0]
        if atom.function == "max" and power == 1:
            return atom.left, atom.right
    return ()


FUNCTIONS: Mapping[str, Callable[[SizeExpr, SizeExpr], SizeExpr]] = {
    "floordiv": floordiv,
    "mod": modulo,
    "max": maximum,
}
