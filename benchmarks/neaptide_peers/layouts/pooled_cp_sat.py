"""Layouts over several memory spaces by CP-SAT: choice of spaces and addresses in one model, for up to 200 buffers.

A buffer has one rectangle in each of its spaces, of which exactly one is there; the others are left out. Bytes are
counted in units of their greatest common divisor, and time is cut down to the steps at which a set of live buffers is
complete, both as in `cp_model`.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from math import gcd
from typing import Final

from neaptide.errors import UsageError
from neaptide.layout.pools.bounds import SectionLoads, cost_bound, excluded_space
from neaptide.layout.pools.spaces import Place, PooledLayout, PooledProblem, check_pooled_layout
from neaptide.layout.problem import LIMIT
from neaptide.outcome import Limits, Outcome, Stopwatch, Termination, TerminationReason
from neaptide_peers.cp_sat.builder import CpModelBuilder
from neaptide_peers.cp_sat.model import CpModel, Linear, value_of
from neaptide_peers.cp_sat.solve import solve
from neaptide_peers.layouts.cp_model import compressed_steps, unit_bytes

MOST_BUFFERS: Final = 200
"""In one model; with 80 it is proved in seconds or has a gap of some percent, by how tight the spaces are."""


def place_with_cp_sat(
    pooled: PooledProblem,
    limits: Limits | None = None,
    interrupt: threading.Event | None = None,
    *,
    hint: PooledLayout | None = None,
    workers: int = 1,
) -> Outcome[PooledLayout]:
    """The cheapest layout, or the proof that there is none.

    Args:
        pooled: buffers and spaces; none of the spaces may limit the size of its arenas.
        limits: of wall-clock time, of which starting the solver takes about a second, and of work.
        interrupt: when set, the search ends.
        hint: a layout to start from; it comes back where nothing better is found.
        workers: threads of the solver.

    Returns:
        `OPTIMAL` with proof, `FEASIBLE` or `INTERRUPTED` with a layout and a bound of its cost, `INFEASIBLE` with
        proof, or `NO_SOLUTION_FOUND`. `best` and `bound` are costs.

    Raises:
        MissingExtra: OR-tools is not installed.
        SolverError: the solver died.
        UsageError: too many buffers, or a limit to the size of arenas.
        VerifyError: the hint is no layout of the problem.
    """
    watch = Stopwatch()
    if len(pooled) > MOST_BUFFERS:
        raise UsageError(
            f"the exact choice of spaces takes {MOST_BUFFERS} buffers at most, not {len(pooled)}",
            next_step="use neaptide.layout.pools.place_in_spaces",
        )
    if any(space.max_arena_bytes is not None for space in pooled.spaces):
        raise UsageError("the exact choice of spaces knows no limit to the size of an arena")
    if hint is not None:
        check_pooled_layout(pooled, hint)
    sections = SectionLoads(pooled.problem)
    reason = excluded_space(pooled, sections)
    if reason is not None:
        return Outcome(None, Termination(TerminationReason.INFEASIBLE, detail=reason), watch.seconds())
    bound = cost_bound(pooled, sections).cost
    if not len(pooled) or (hint is not None and hint.cost <= bound):
        known = hint or PooledLayout((), ((),) * len(pooled.spaces), 0)
        ended = Termination(TerminationReason.OPTIMAL, best=known.cost, bound=known.cost)
        return Outcome(known, ended, watch.seconds())
    model = _pooled_model(pooled, bound, hint)
    left = (limits or Limits()).after(watch.seconds())
    found = solve(model.model, left, workers=workers, interrupt=interrupt)
    best = hint
    if found.value is not None:
        layout = model.layout(pooled, found.value.values)
        check_pooled_layout(pooled, layout)
        if best is None or layout.cost < best.cost:
            best = layout
    ended = found.termination
    if ended.bound is not None:
        bound = max(bound, int(ended.bound) * model.cost_unit)
    cost = None if best is None else best.cost
    if cost is not None and cost <= bound:
        ended = Termination(TerminationReason.OPTIMAL, None, ended.detail, cost, cost)
    elif cost is not None and ended.reason is TerminationReason.NO_SOLUTION_FOUND:
        ended = Termination(TerminationReason.FEASIBLE, ended.limit, ended.detail, cost, bound)
    else:
        ended = replace(ended, best=cost, bound=bound)
    return Outcome(best, ended, watch.seconds(), found.work)


@dataclass(frozen=True, slots=True)
class _PooledModel:
    """The constraint model.

    Attributes:
        model: its objective is the cost in units.
        unit: bytes.
        cost_unit: of the objective.
        choices: by buffer and space, the literal that it lies there, and its offset in units.
    """

    model: CpModel
    unit: int
    cost_unit: int
    choices: tuple[dict[int, tuple[int, Linear]], ...]

    def layout(self, pooled: PooledProblem, values: tuple[int, ...]) -> PooledLayout:
        """The layout that a solution stands for."""
        places = [
            Place(space, 0, self.unit * value_of(offset, values))
            for choice in self.choices
            for space, (literal, offset) in choice.items()
            if values[literal]
        ]
        tops = [0] * len(pooled.spaces)
        used = {place.space for place in places}
        for place, buffer in zip(places, pooled.problem.buffers, strict=True):
            tops[place.space] = max(tops[place.space], place.offset + buffer.nbytes)
        cost = sum(costs[place.space] for costs, place in zip(pooled.costs, places, strict=True))
        sizes = tuple((top,) if space in used else () for space, top in enumerate(tops))
        return PooledLayout(tuple(places), sizes, cost)


def _pooled_model(pooled: PooledProblem, bound: int, hint: PooledLayout | None) -> _PooledModel:
    builder = CpModelBuilder()
    unit = _unit(pooled)
    buffers = pooled.problem.buffers
    parts = [(index, part) for index, buffer in enumerate(buffers) for part in buffer.parts()]
    steps = compressed_steps([(part.start, part.end) for _, part in parts])
    end_to_end = sum(b.nbytes + max(b.alignment, *(s.alignment for s in pooled.spaces)) for b in buffers)
    end_to_end += max((b.offset + b.nbytes for b in buffers if b.offset is not None), default=0)
    choices: list[dict[int, tuple[int, Linear]]] = []
    for index, buffer in enumerate(buffers):
        choice: dict[int, tuple[int, Linear]] = {}
        for number in pooled.choices[index]:
            space = pooled.spaces[number]
            literal = builder.boolean()
            place = None if hint is None else hint.places[index]
            is_there = place is not None and place.space == number
            if hint is not None:
                builder.hint(literal, int(is_there))
            if buffer.offset is not None:
                choice[number] = literal, Linear(constant=buffer.offset // unit)
                continue
            room = min(end_to_end, LIMIT if space.capacity_bytes is None else space.capacity_bytes)
            stride = max(1, max(buffer.alignment, space.alignment) // unit)
            offset = builder.integer(0, (room // unit - buffer.nbytes // unit) // stride)
            if place is not None and is_there:
                builder.hint(offset, place.offset // unit // stride)
            choice[number] = literal, Linear.of(offset, stride)
        builder.require([(1, literal) for literal, _ in choice.values()], at_least=1, at_most=1)
        choices.append(choice)
    for number in range(len(pooled.spaces)):
        columns: list[int] = []
        rows: list[int] = []
        for (begin, end), (index, part) in zip(steps, parts, strict=True):
            if number in choices[index]:
                literal, start = choices[index][number]
                low, height = part.low // unit, (part.high - part.low) // unit
                columns.append(builder.interval(Linear(constant=begin), end - begin, when=literal))
                rows.append(builder.interval(Linear(start.terms, start.constant + low), height, when=literal))
        builder.no_overlap_2d(columns, rows)
    cost_unit = gcd(*(cost for costs in pooled.costs for cost in costs)) or 1
    terms = tuple(
        (pooled.costs[index][number] // cost_unit, literal)
        for index, choice in enumerate(choices)
        for number, (literal, _) in choice.items()
        if pooled.costs[index][number]
    )
    builder.require(terms, at_least=-(-bound // cost_unit))
    builder.minimise(Linear(terms))
    return _PooledModel(builder.build(), unit, cost_unit, tuple(choices))


def _unit(pooled: PooledProblem) -> int:
    """Bytes in whose multiples every space may be laid out without loss, whichever buffers lie in it."""
    unit = unit_bytes(pooled.problem)
    for space in pooled.spaces:
        if unit % space.alignment:
            unit = gcd(unit, space.alignment)
    return unit
