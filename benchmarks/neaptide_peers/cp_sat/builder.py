"""Writes a constraint model piece by piece."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from neaptide_peers.cp_sat.model import (
    CpModel,
    Cumulative,
    Interval,
    Linear,
    LinearConstraint,
    MaxEquality,
    NoOverlap2D,
    Variable,
)


class CpModelBuilder:
    """Collects variables and constraints; `build` makes the model of them.

    >>> b = CpModelBuilder()
    >>> x, y = b.integer(0, 9), b.integer(0, 9)
    >>> b.require(((1, x), (1, y)), at_least=7)
    >>> b.minimise(Linear(((2, x), (1, y))))
    >>> len(b.build().variables)
    2
    """

    def __init__(self) -> None:
        self._variables: list[Variable] = []
        self._linear: list[LinearConstraint] = []
        self._maxima: list[MaxEquality] = []
        self._intervals: list[Interval] = []
        self._no_overlap: list[tuple[int, ...]] = []
        self._cumulative: list[Cumulative] = []
        self._no_overlap_2d: list[NoOverlap2D] = []
        self._objective: Linear | None = None
        self._hints: dict[int, int] = {}

    def integer(self, lower: int, upper: int) -> int:
        """A variable with the domain `[lower, upper]`, both inclusive."""
        return self.integer_in(((lower, upper),))

    def integer_in(self, ranges: Sequence[tuple[int, int]]) -> int:
        """A variable whose domain is the union of ranges, inclusive on both sides, ascending and disjoint."""
        self._variables.append(Variable(tuple(ranges)))
        return len(self._variables) - 1

    def boolean(self) -> int:
        """A variable that is 0 or 1: a literal."""
        return self.integer(0, 1)

    def require(
        self,
        terms: Iterable[tuple[int, int]],
        *,
        at_least: int | None = None,
        at_most: int | None = None,
        when: Sequence[int] = (),
    ) -> None:
        """Hold the sum of (coefficient, variable) between two limits, wherever all literals of `when` are true."""
        self._linear.append(LinearConstraint(Linear(tuple(terms)), at_least, at_most, tuple(when)))

    def require_maximum(self, target: int, of: Sequence[Linear]) -> None:
        """Make a variable the largest of several expressions."""
        self._maxima.append(MaxEquality(target, tuple(of)))

    def interval(self, start: Linear, size: int, *, when: int | None = None) -> int:
        """An interval `[start, start + size)`, there only if the literal `when` is true."""
        self._intervals.append(Interval(start, size, when))
        return len(self._intervals) - 1

    def span(self, start: Linear, end: Linear, *, least: int = 1, when: int | None = None) -> int:
        """An interval `[start, end)` at least `least` long, there only if the literal `when` is true."""
        self._intervals.append(Interval(start, least, when, end))
        return len(self._intervals) - 1

    def no_overlap(self, intervals: Sequence[int]) -> None:
        """Keep intervals apart."""
        self._no_overlap.append(tuple(intervals))

    def cumulative(self, intervals: Sequence[int], demands: Sequence[int], capacity: Linear) -> None:
        """Keep the demands at every point within a capacity."""
        self._cumulative.append(Cumulative(tuple(intervals), tuple(demands), capacity))

    def no_overlap_2d(self, x: Sequence[int], y: Sequence[int]) -> None:
        """Keep rectangles `x[k]` by `y[k]` apart."""
        self._no_overlap_2d.append(NoOverlap2D(tuple(x), tuple(y)))

    def minimise(self, objective: Linear) -> None:
        """What the solution is chosen by."""
        self._objective = objective

    def hint(self, variable: int, value: int) -> None:
        """Start the search from this value."""
        self._hints[variable] = value

    def build(self) -> CpModel:
        """The model so far.

        Raises:
            VerifyError: an index, domain or length is wrong.
        """
        return CpModel(
            tuple(self._variables),
            tuple(self._linear),
            tuple(self._maxima),
            tuple(self._intervals),
            tuple(self._no_overlap),
            tuple(self._cumulative),
            tuple(self._no_overlap_2d),
            self._objective,
            tuple(self._hints.items()),
        )
