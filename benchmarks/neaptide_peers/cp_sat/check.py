"""The checker of what the solver says: every constraint of a model, played with a solution in plain Python."""

from __future__ import annotations

from itertools import pairwise

from neaptide.errors import VerifyError
from neaptide_peers.cp_sat.model import CpModel, Interval, negated, value_of


def check_solution(model: CpModel, values: tuple[int, ...]) -> None:
    """Make sure that values satisfy a model. O(size), and the pairs of rectangles that meet on the x axis.

    Raises:
        VerifyError: names the first constraint that does not hold.
    """
    if len(values) != len(model.variables):
        raise VerifyError(f"the solver gave {len(values)} values for {len(model.variables)} variables")
    for index, (variable, value) in enumerate(zip(model.variables, values, strict=True)):
        if not any(low <= value <= high for low, high in variable.ranges):
            raise VerifyError(f"the solver gave variable {index} the value {value}, outside its domain")
    for number, constraint in enumerate(model.linear):
        if all(_is_true(literal, values) for literal in constraint.when):
            value = value_of(constraint.expression, values)
            is_low = constraint.lower is not None and value < constraint.lower
            if is_low or (constraint.upper is not None and value > constraint.upper):
                raise VerifyError(f"the solver broke linear constraint {number}, whose value is {value}")
    for number, maximum in enumerate(model.maxima):
        if values[maximum.target] != max(value_of(expression, values) for expression in maximum.of):
            raise VerifyError(f"the solver broke maximum {number}")
    spans = [_span(interval, values) for interval in model.intervals]
    for number, group in enumerate(model.no_overlap):
        _check_line([spans[interval] for interval in group], f"no-overlap constraint {number}")
    for number, cumulative in enumerate(model.cumulative):
        capacity = value_of(cumulative.capacity, values)
        loads = list(zip((spans[i] for i in cumulative.intervals), cumulative.demands, strict=True))
        _check_loads(loads, capacity, f"cumulative constraint {number}")
    for number, rectangles in enumerate(model.no_overlap_2d):
        x, y = ([spans[interval] for interval in axis] for axis in (rectangles.x, rectangles.y))
        _check_plane(x, y, f"rectangle constraint {number}")


def _is_true(literal: int, values: tuple[int, ...]) -> bool:
    return values[literal] == 1 if literal >= 0 else values[negated(literal)] == 0


def _span(interval: Interval, values: tuple[int, ...]) -> tuple[int, int] | None:
    """`(start, end)`, or None if it is not there."""
    if interval.when is not None and not _is_true(interval.when, values):
        return None
    start = value_of(interval.start, values)
    end = start + interval.size if interval.end is None else value_of(interval.end, values)
    if end < start + interval.size:
        raise VerifyError(f"the solver made an interval from {start} to {end}, shorter than {interval.size}")
    return start, end


def _check_line(spans: list[tuple[int, int] | None], name: str) -> None:
    there = sorted(span for span in spans if span is not None)
    for (_, end), (start, _) in pairwise(there):
        if start < end:
            raise VerifyError(f"the solver broke {name} at {start}")


def _check_loads(loads: list[tuple[tuple[int, int] | None, int]], capacity: int, name: str) -> None:
    changes: dict[int, int] = {}
    for span, demand in loads:
        if span is not None and span[0] < span[1]:
            changes[span[0]] = changes.get(span[0], 0) + demand
            changes[span[1]] = changes.get(span[1], 0) - demand
    load = 0
    for point in sorted(changes):
        load += changes[point]
        if load > capacity:
            raise VerifyError(f"the solver broke {name}: {load} at {point}")


def _check_plane(x: list[tuple[int, int] | None], y: list[tuple[int, int] | None], name: str) -> None:
    there = sorted((a, b) for a, b in zip(x, y, strict=True) if a is not None and b is not None)
    open_now: list[tuple[tuple[int, int], tuple[int, int]]] = []
    for a, b in there:
        open_now = [other for other in open_now if other[0][1] > a[0]]
        for _, other in open_now:
            if b[0] < other[1] and other[0] < b[1]:
                raise VerifyError(f"the solver broke {name} at ({a[0]}, {max(b[0], other[0])})")
        open_now.append((a, b))
