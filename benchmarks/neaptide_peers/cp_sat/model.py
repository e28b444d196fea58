"""A constraint model as plain data: what goes to the solver and what its answers are checked against.

Variables are integers with a domain and go by their index. A literal is a variable with the domain {0, 1}, or its
negation (`negated`). Nothing here knows the solver.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from neaptide.errors import VerifyError

LARGEST: Final = (1 << 63) - 1
"""The solver counts in 64 bits with a sign."""


@dataclass(frozen=True, slots=True)
class Linear:
    """A sum of integer multiples of variables and a constant.

    Attributes:
        terms: pairs (coefficient, variable).
        constant: added to them.
    """

    terms: tuple[tuple[int, int], ...] = ()
    constant: int = 0

    @staticmethod
    def of(variable: int, coefficient: int = 1, constant: int = 0) -> Linear:
        """A multiple of one variable, and a constant."""
        return Linear(((coefficient, variable),), constant)


@dataclass(frozen=True, slots=True)
class Variable:
    """An integer.

    Attributes:
        ranges: its domain, `[lower, upper]` inclusive, ascending and disjoint.
    """

    ranges: tuple[tuple[int, int], ...]

    @property
    def lower(self) -> int:
        return self.ranges[0][0]

    @property
    def upper(self) -> int:
        return self.ranges[-1][1]

    @property
    def is_boolean(self) -> bool:
        return self.lower >= 0 and self.upper <= 1


@dataclass(frozen=True, slots=True)
class LinearConstraint:
    """`lower <= expression <= upper`, wherever all literals of `when` are true; None for no limit on that side.

    The limits leave room: OR-tools 9.15 lets a constraint pass whose limits are the wrong way round.
    """

    expression: Linear
    lower: int | None = None
    upper: int | None = None
    when: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class MaxEquality:
    """A variable is the largest of several expressions."""

    target: int
    of: tuple[Linear, ...]


@dataclass(frozen=True, slots=True)
class Interval:
    """`[start, start + size)`; there only if the literal `when` is true, or always if that is None.

    Attributes:
        start: at most one term: fixed, or a multiple of one variable and a constant.
        size: at least 1.
        when: a literal.
        end: in place of `start + size`; then it is at least that, wherever the interval is there. Of the form of
            `start`.
    """

    start: Linear
    size: int
    when: int | None = None
    end: Linear | None = None


@dataclass(frozen=True, slots=True)
class Cumulative:
    """At every point the demands of the intervals there sum up to at most the capacity."""

    intervals: tuple[int, ...]
    demands: tuple[int, ...]
    capacity: Linear


@dataclass(frozen=True, slots=True)
class NoOverlap2D:
    """Rectangles `x[k]` by `y[k]` share no inner point. Both intervals of one are there under the same literal.

    Their sizes are fixed.

    With two literals for one rectangle OR-tools 9.10 to 9.15 give wrong answers.
    """

    x: tuple[int, ...]
    y: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CpModel:
    """Variables, constraints on them, and what to minimise.

    Attributes:
        variables: by index.
        linear: linear constraints.
        maxima: maximum constraints.
        intervals: by index; they constrain nothing by themselves, save for their least size.
        no_overlap: groups of intervals of which no two share an inner point.
        cumulative: cumulative constraints.
        no_overlap_2d: rectangle constraints.
        objective: to be minimised; None where any solution will do.
        hints: pairs (variable, value): a solution, or a part of one, to start from. A bad hint costs nothing but time.
    """

    variables: tuple[Variable, ...]
    linear: tuple[LinearConstraint, ...] = ()
    maxima: tuple[MaxEquality, ...] = ()
    intervals: tuple[Interval, ...] = ()
    no_overlap: tuple[tuple[int, ...], ...] = ()
    cumulative: tuple[Cumulative, ...] = ()
    no_overlap_2d: tuple[NoOverlap2D, ...] = ()
    objective: Linear | None = None
    hints: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        fault = _fault(self)
        if fault is not None:
            raise VerifyError(f"the constraint model is malformed: {fault}")


@dataclass(frozen=True, slots=True)
class CpSolution:
    """A value for each variable.

    Attributes:
        values: by variable.
        objective: what the model minimises; 0 if it minimises nothing.
    """

    values: tuple[int, ...]
    objective: int


def negated(literal: int) -> int:
    """The literal that is true where this one is false."""
    return -literal - 1


def variable_of(literal: int) -> int:
    """The variable of a literal."""
    return literal if literal >= 0 else negated(literal)


def value_of(expression: Linear, values: tuple[int, ...]) -> int:
    """The value of an expression."""
    return sum(factor * values[variable] for factor, variable in expression.terms) + expression.constant


def beyond_64_bits(model: CpModel) -> str | None:
    """Which number of a model the solver could not count with; None if it can. O(size).

    Expressions must not overflow at any corner of the domains, in any order of summation.
    """
    widths = [max(abs(v.lower), abs(v.upper)) for v in model.variables]
    if sum(widths) > LARGEST:
        return "the domains of all variables together"
    named: list[tuple[str, Linear]] = [("a linear constraint", c.expression) for c in model.linear]
    named += [("a maximum", expression) for maximum in model.maxima for expression in maximum.of]
    named += [("a capacity", constraint.capacity) for constraint in model.cumulative]
    if model.objective is not None:
        named.append(("the objective", model.objective))
    named += [("the end of an interval", _end_of(interval)) for interval in model.intervals]
    for name, expression in named:
        if _largest(expression, widths) > LARGEST:
            return name
    for constraint in model.linear:
        if any(abs(limit) > LARGEST for limit in (constraint.lower, constraint.upper) if limit is not None):
            return "the limit of a linear constraint"
    for cumulative in model.cumulative:
        if sum(cumulative.demands) > LARGEST or _energy(model, cumulative) > LARGEST:
            return "the demands of a cumulative constraint"
    for rectangles in model.no_overlap_2d:
        sizes = ((model.intervals[x].size, model.intervals[y].size) for x, y in _pairs(rectangles))
        if sum(width * height for width, height in sizes) > LARGEST:
            return "the area of all rectangles"
    return None


def most_size(interval: Interval, variables: tuple[Variable, ...]) -> int:
    """The largest size that an interval can have."""
    if interval.end is None:
        return interval.size
    corners = []
    for expression, sign in ((interval.end, 1), (interval.start, -1)):
        ends = [sign * expression.constant]
        for factor, variable in expression.terms:
            domain = variables[variable]
            ends = [end + sign * factor * value for end in ends for value in (domain.lower, domain.upper)]
        corners.append(max(ends))
    return max(sum(corners), interval.size)


def _end_of(interval: Interval) -> Linear:
    if interval.end is not None:
        return interval.end
    return Linear(interval.start.terms, interval.start.constant + interval.size)


def _largest(expression: Linear, widths: list[int]) -> int:
    return sum(abs(factor) * widths[v] for factor, v in expression.terms) + abs(expression.constant)


def _energy(model: CpModel, cumulative: Cumulative) -> int:
    pairs = zip(cumulative.intervals, cumulative.demands, strict=True)
    return sum(most_size(model.intervals[i], model.variables) * demand for i, demand in pairs)


def _pairs(rectangles: NoOverlap2D) -> Iterable[tuple[int, int]]:
    return zip(rectangles.x, rectangles.y, strict=True)


def _fault(model: CpModel) -> str | None:
    """What is wrong with the form of a model, whoever made it: indices, domains, lengths."""
    for index, variable in enumerate(model.variables):
        if not _is_domain(variable.ranges):
            return f"variable {index} has the domain {variable.ranges}"
    expressions = [c.expression for c in model.linear] + [c.capacity for c in model.cumulative]
    expressions += [e for maximum in model.maxima for e in maximum.of] + [i.start for i in model.intervals]
    expressions += [i.end for i in model.intervals if i.end is not None]
    expressions += [] if model.objective is None else [model.objective]
    named = [variable for expression in expressions for _, variable in expression.terms]
    named += [maximum.target for maximum in model.maxima] + [variable for variable, _ in model.hints]
    for name in named:
        if not 0 <= name < len(model.variables):
            return f"there is no variable {name}"
    for constraint in model.linear:
        low, high = constraint.lower, constraint.upper
        if low is not None and high is not None and low > high:
            return f"the limits {low} and {high} of a linear constraint leave no room"
    literals = [literal for constraint in model.linear for literal in constraint.when]
    literals += [interval.when for interval in model.intervals if interval.when is not None]
    for literal in literals:
        number = variable_of(literal)
        if number >= len(model.variables) or not model.variables[number].is_boolean:
            return f"{literal} is no literal"
    for interval in model.intervals:
        ends = (interval.start,) if interval.end is None else (interval.start, interval.end)
        if interval.size < 1 or any(len(end.terms) > 1 for end in ends):
            return f"{interval} is no interval"
    groups = [*model.no_overlap, *(c.intervals for c in model.cumulative)]
    groups += [axis for rectangles in model.no_overlap_2d for axis in (rectangles.x, rectangles.y)]
    if any(not 0 <= interval < len(model.intervals) for group in groups for interval in group):
        return "a constraint names an interval that is not there"
    if any(len(c.intervals) != len(c.demands) or min(c.demands, default=0) < 0 for c in model.cumulative):
        return "a cumulative constraint needs a demand of at least 0 for each interval"
    if any(len(rectangles.x) != len(rectangles.y) for rectangles in model.no_overlap_2d):
        return "rectangles need as many intervals on either axis"
    for x, y in (pair for rectangles in model.no_overlap_2d for pair in _pairs(rectangles)):
        if model.intervals[x].when != model.intervals[y].when:
            return "the intervals of a rectangle are there under different literals"
    if any(model.intervals[i].end is not None for r in model.no_overlap_2d for i in (*r.x, *r.y)):
        return "a rectangle has no fixed size"
    if any(not maximum.of for maximum in model.maxima):
        return "a maximum of nothing"
    return None


def _is_domain(ranges: tuple[tuple[int, int], ...]) -> bool:
    ends = [end for span in ranges for end in span]
    ordered = all(low <= high for low, high in ranges)
    return bool(ranges) and ordered and all(a < b for a, b in zip(ends[1::2], ends[2::2], strict=False))
