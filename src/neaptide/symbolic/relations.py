"""What is known of the sizes of a graph, in one store: ranges and relations. It compares sizes, with proof or not at all.

A comparison is tried in this order:

1. signs of coefficients, and the interval of each monomial, in the form of `symbolic.basis`;
2. numbers at sample shapes: where one size is smaller at one shape and larger at another, no single answer holds; where
   the difference is linear in each dim, the corners of a finite box say all;
3. what `symbolic.ranges` proves of the difference, where it has opaque terms: floor divisions relaxed, both cases of a
   maximum; and with multiples of facts added, which are 0, and of ranges of dims that relations took out.

Steps 1 and 2 take a few microseconds; nothing is remembered of pairs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import gcd, inf
from operator import mul
from typing import Final, Literal, TypeAlias

from neaptide.errors import SymbolicError
from neaptide.symbolic.basis import CONSTANT, Basis
from neaptide.symbolic.dims import Dim, Relation, bound_dims, bound_relations
from neaptide.symbolic.ranges import Interval, bound
from neaptide.symbolic.size_expr import SizeExpr
from neaptide.symbolic.solving import solve

Order: TypeAlias = Literal["<", "<=", "==", ">=", ">"]

# Each level of cases may multiply the work by twice the opaque terms, so their depth falls with the number of these:
# where nothing is proved of 24 of them that takes about 10 ms, with four levels 100 ms.
_DEPTHS: Final = {0: 4, 1: 4, 2: 3}
_MANY_TERMS: Final = 12
_TURNED: dict[Order, Order] = {"<": ">", "<=": ">=", "==": "==", ">=": "<=", ">": "<"}


class KnownSize:
    """A size in the form of a store. Immutable; adds, subtracts and compares within its store.

    Attributes:
        coefficients: by number of a monomial; none is 0.
    """

    __slots__ = ("_basis", "_hash", "_samples", "coefficients")

    def __init__(self, basis: Basis, coefficients: Mapping[int, int]) -> None:
        self._basis = basis
        self._samples: tuple[int, ...] | None = None
        self._hash: int | None = None
        self.coefficients = coefficients

    @property
    def samples(self) -> tuple[int, ...]:
        """Its numbers at the sample shapes of the store."""
        if self._samples is None:
            numbers, coefficients = self.coefficients.keys(), self.coefficients.values()
            self._samples = tuple(
                sum(map(mul, coefficients, map(values.__getitem__, numbers))) for values in self._basis.values
            )
        return self._samples

    def __add__(self, other: KnownSize) -> KnownSize:
        if not other.coefficients:
            return self
        total = dict(self.coefficients)
        for number, coefficient in other.coefficients.items():
            if left := total.get(number, 0) + coefficient:
                total[number] = left
            else:
                del total[number]
        return KnownSize(self._basis, total)

    def __sub__(self, other: KnownSize) -> KnownSize:
        return self + other * -1

    def __mul__(self, times: int) -> KnownSize:
        if not times:
            return KnownSize(self._basis, {})
        scaled = {number: coefficient * times for number, coefficient in self.coefficients.items()}
        return KnownSize(self._basis, scaled)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KnownSize) and self.coefficients == other.coefficients

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self.coefficients.items()))
        return self._hash


class SizeRelations:
    """The store of a graph.

    >>> S0, S1 = SizeExpr.dim("S0"), SizeExpr.dim("S1")
    >>> store = SizeRelations([Dim("S0"), Dim("S1", 1)], [Relation(S0, 12 * S1)])
    >>> store.compare(11008 * S1, 1024 * S0), str(store.expression(store.known(1024 * S0)))
    ('<', '12288*S1')
    """

    def __init__(self, dims: Iterable[Dim], relations: Iterable[Relation] = ()) -> None:
        """Solve the relations.

        Args:
            dims: with their ranges; a dim that only relations or sizes name is 0 or more.
        """
        self.dims = tuple(dims)
        self.relations = tuple(relations)
        self._solution = solve(self.dims, self.relations)
        self._basis = Basis(self._solution, (dim.name for dim in self.dims))
        self._known: dict[SizeExpr, KnownSize] = {}

    def known(self, expr: SizeExpr) -> KnownSize:
        """A size in the form of this store; made once for equal expressions."""
        found = self._known.get(expr)
        if found is None:
            found = self._known[expr] = self._made(expr)
        return found

    def of_coefficients(self, coefficients: Mapping[int, int]) -> KnownSize:
        """The size with some `KnownSize.coefficients`, none of them 0."""
        return KnownSize(self._basis, coefficients)

    def compare(self, a: SizeExpr, b: SizeExpr) -> Order | None:
        """How two sizes relate for all shapes; None when no single answer could be proved.

        `<=` is the answer where `<` could not be proved; they may still differ at every shape.
        """
        return self.compare_known(self.known(a), self.known(b))

    def bound(self, expr: SizeExpr) -> Interval:
        """An interval that surely holds a size."""
        inside = self._basis.expression(self.known(expr).coefficients)
        return bound(inside, self._basis.ranges)

    def expression(self, known: KnownSize) -> SizeExpr:
        """A size in the form of this store as an expression over dims of the graph."""
        result = self._basis.expression(known.coefficients).substitute(self._basis.ends)
        for name, meaning in reversed(self._solution.meanings.items()):
            result = result.substitute({name: meaning})
        return result

    def compare_known(self, a: KnownSize, b: KnownSize) -> Order | None:
        """`compare` for sizes in the form of this store. O(terms) where coefficients or samples decide."""
        basis = self._basis
        difference = dict(a.coefficients)
        get = difference.get
        for number, coefficient in b.coefficients.items():
            difference[number] = get(number, 0) - coefficient
        lows, highs = basis.lows, basis.highs
        low: int | float = 0
        high: int | float = 0
        for number, coefficient in difference.items():
            if coefficient > 0:
                low += coefficient * lows[number]
                high += coefficient * highs[number]
            elif coefficient < 0:
                low += coefficient * highs[number]
                high += coefficient * lows[number]
        if high <= 0 or low >= 0:
            return _order(low, high, difference)
        return self._by_samples(difference)

    def binding(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Numbers of all dims of the graph, for numbers of enough of them that relations tell the rest."""
        known = dict(sizes)
        for _ in range(len(self.relations) + 1):
            for relation in self.relations:
                known |= _told(relation, known)
        missing = [dim.name for dim in bound_dims(self.dims, known)]
        missing += [f"all dims of {relation}" for relation in bound_relations(self.relations, known)]
        if missing:
            raise SymbolicError(
                f"no value for {', '.join(missing)}", next_step="bind every dim that no relation tells"
            )
        return known

    def samples(self) -> tuple[dict[str, int], ...]:
        """Shapes that the ranges and relations allow, as numbers of all dims: those at which sizes are sampled."""
        basis = self._basis
        return tuple(
            {dim.name: basis.images[dim.name].evaluate(point) for dim in self.dims} for point in basis.points
        )

    def _made(self, expr: SizeExpr) -> KnownSize:
        if not expr.dims() <= self._basis.images.keys():
            unknown = sorted(expr.dims() - self._basis.images.keys())
            raise SymbolicError(f"dim {unknown[0]} is not declared", where=str(expr))
        return KnownSize(self._basis, self._basis.coefficients(expr))

    def _by_samples(self, difference: dict[int, int]) -> Order | None:
        """What numbers at shapes say of a difference, and where they leave it open, the dearer proofs."""
        basis, solution = self._basis, self._solution
        numbers, coefficients = difference.keys(), difference.values()
        low: int | float = inf
        high: int | float = -inf
        if basis.has_origin:
            low = high = difference.get(CONSTANT, 0)
        for values in basis.values[basis.has_origin :]:
            number = sum(map(mul, coefficients, map(values.__getitem__, numbers)))
            low = min(low, number)
            high = max(high, number)
            if low < 0 < high:
                return None
        difference = {number: coefficient for number, coefficient in difference.items() if coefficient}
        numbers = difference.keys()
        if basis.has_corners and all(map(basis.is_smooth.__getitem__, numbers)):
            return _order(low, high, difference)
        has_more = solution.facts or solution.within or any(map(basis.is_opaque.__getitem__, numbers))
        if not has_more:
            return None
        if high <= 0 and (order := self._at_most_zero(difference)) is not None:
            return order
        if low < 0:
            return None
        order = self._at_most_zero({number: -coefficient for number, coefficient in difference.items()})
        return None if order is None else _TURNED[order]

    def _at_most_zero(self, difference: dict[int, int]) -> Order | None:
        """`<`, `<=` or `==` of a difference and 0, where one of them can be proved."""
        opaque = sum(map(self._basis.is_opaque.__getitem__, difference))
        depth = 1 if len(difference) > _MANY_TERMS else _DEPTHS.get(opaque, 2)
        found: Order | None = None
        for candidate, is_same in self._raised(self._basis.expression(difference)):
            over = bound(candidate, self._basis.ranges, depth)
            if over.high is None or over.high > 0:
                continue
            if over.high < 0:
                return "<"
            if is_same and over.low == 0:
                return "=="
            found = "<="
        return "<" if found and _is_never_zero(difference) else found

    def _raised(self, expr: SizeExpr) -> Iterator[tuple[SizeExpr, bool]]:
        """Expressions that are no less than one, and whether they equal it.

        Itself, and with what relations say added so that a term drops out.
        """
        yield expr, True
        begin = self._basis.begin
        for fact in self._solution.facts:
            zero = fact.substitute(begin)
            for times in _multiples(expr, zero):
                yield expr - times * zero, True
        for image, interval in self._solution.within:
            inside = image.substitute(begin)
            for end, sign in ((interval.high, 1), (interval.low, -1)):
                if end is not None:
                    slack = sign * (inside - end)  # 0 or less
                    for times in _multiples(expr, slack):
                        if times > 0:
                            yield expr - times * slack, False


def _multiples(expr: SizeExpr, by: SizeExpr) -> list[int]:
    """By what to multiply an expression so that one of its terms cancels one of another."""
    terms = dict(by.terms())
    return list(
        dict.fromkeys(
            coefficient // terms[monomial]
            for monomial, coefficient in expr.terms()
            if monomial and monomial in terms and coefficient // terms[monomial]
        )
    )


def _order(low: float, high: float, difference: Mapping[int, int]) -> Order | None:
    """What the ends of an interval that holds a difference say of it and 0."""
    if low == high == 0:
        return "=="
    if high <= 0:
        return "<" if high < 0 or _is_never_zero(difference) else "<="
    if low >= 0:
        return ">" if low > 0 or _is_never_zero(difference) else ">="
    return None


def _is_never_zero(difference: Mapping[int, int]) -> bool:
    """Whether the constant is no multiple of what divides all other coefficients."""
    common = gcd(*(c for number, c in difference.items() if number != CONSTANT))
    return common > 0 and difference.get(CONSTANT, 0) % common != 0


def _told(relation: Relation, known: Mapping[str, int]) -> dict[str, int]:
    """The number of the one dim of a relation that is open, where it is linear in it and nothing else holds it."""
    zero = (relation.left - relation.right).substitute(known)
    names = zero.dims()
    if len(names) != 1:
        return {}
    (name,) = names
    rest, slope = zero.substitute({name: 0}), zero.substitute({name: 1}) - zero.substitute({name: 0})
    if not slope.is_constant or not rest.is_constant or slope * SizeExpr.dim(name) + rest != zero:
        return {}
    size, left_over = divmod(-rest.constant_value(), slope.constant_value())
    if left_over:
        raise SymbolicError(f"no whole number for {name} keeps {relation}")
    return {name: size}
