"""Recomputation as retention intervals, for CP-SAT (Bartan et al. 2023, Moccasin).

Every step that a plan in stages may have is an event with a time: in each stage the units that may run again there,
in running order, then the first execution that ends the stage. A storage has one interval from its first execution
and, where its unit may run again, a second one that is there or not and begins at one of the unit's events. Whoever
reads it reads within one of them, and the intervals at one time fit into the budget. O(units) variables in place of
the O(stages x units) of an integer program, and no relaxation of use: its bounds are weak.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from neaptide.planner.recompute.units import StageUnits
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.instances import TO_END
from neaptide_peers.cp_sat.builder import CpModelBuilder
from neaptide_peers.cp_sat.model import CpModel, Linear

_COST_UNITS: Final = 1e9
"""In which the baseline's seconds are counted; costs are rounded down, so that bounds stay bounds."""


@dataclass(frozen=True, slots=True)
class _Second:
    """The second run of a unit.

    Attributes:
        is_there: literal.
        start: variable, its event.
        cost: of it.
    """

    is_there: int
    start: int
    cost: int


class IntervalModel:
    """The constraint model of some units and a budget.

    Units of the backward and outputs run once if the program has a backward, every other one at
    most twice.

    Attributes:
        model: what to solve; its objective counts the cost of second runs.
    """

    model: CpModel

    def __init__(
        self,
        units: StageUnits,
        budget_bytes: int,
        *,
        hint: Sequence[int] | None = None,
        at_most_s: float | None = None,
    ) -> None:
        """Build the model. O(units x stages) for domains, O(dependencies) variables and constraints.

        Args:
            units: what it is about.
            budget_bytes: highest peak with workspace; room for what the caller owns is needed.
            hint: a node sequence to start from; of a unit that runs more than twice the first two runs.
            at_most_s: only plans that run no more seconds again are wanted.
        """
        self.units = units
        self._builder = CpModelBuilder()
        self._per_second = _COST_UNITS / (units.step.baseline_seconds or 1.0)
        again = [units.again(stage) for stage in range(units.stages)]
        self._rank = [{u: k for k, u in enumerate(inside)} for inside in again]
        self._offset = list(accumulate((len(inside) + 1 for inside in again), initial=0))
        self._second: dict[int, _Second] = {}
        self._end: list[list[int]] = [[] for _ in units.unit_of]
        self._within_first: list[tuple[int, int | None, int, int]] = []
        self._add_units()
        self._add_reads()
        self._add_bytes(budget_bytes)
        terms = tuple((second.cost, second.is_there) for second in self._second.values())
        self._builder.minimise(Linear(terms))
        if at_most_s is not None and terms:
            # Rounding down takes up to one of each cost.
            most = math.ceil(at_most_s * self._per_second)
            self._builder.require(terms, at_most=most)
        if hint is not None:
            self._hint(hint)
        self.model = self._builder.build()

    def seconds(self, objective: float) -> float:
        """Seconds that an objective stands for; no plan with this objective runs shorter."""
        return objective / self._per_second

    def repeated(self, values: Sequence[int]) -> list[list[int]]:
        """By stage, the units that run again there in a solution."""
        found: list[list[int]] = [[] for _ in range(self.units.stages)]
        for index, second in self._second.items():
            if values[second.is_there]:
                found[self._stage_of(index, values[second.start])].append(index)
        return [sorted(units) for units in found]

    def _time(self, stage: int) -> int:
        """Of the first execution that ends a stage."""
        return self._offset[stage + 1] - 1

    def _event(self, stage: int, index: int) -> int:
        """Of a unit that runs again in a stage."""
        return self._offset[stage] + self._rank[stage][index]

    def _stage_of(self, index: int, time: int) -> int:
        unit = self.units.units[index]
        return next(t for t in range(unit.first, unit.last + 1) if self._event(t, index) == time)

    def _add_units(self) -> None:
        """Runs of the units, and how long each storage is held after each."""
        units, builder = self.units, self._builder
        phases = units.step.phases
        has_backward = any(phases[unit.creator] == "backward" for unit in units.units)
        for index, unit in enumerate(units.units):
            is_single = has_backward and (
                phases[unit.creator] == "backward" or any(units.is_output[s] for s in unit.storages)
            )
            start = self._time(unit.position)
            last = [self._time(units.needed_until[s]) for s in unit.storages]
            for storage, end in zip(unit.storages, last, strict=True):
                self._end[storage].append(builder.integer(start, max(end, start)))
            if unit.first > unit.last or is_single:
                continue
            events = [self._event(stage, index) for stage in range(unit.first, unit.last + 1)]
            second = _Second(
                builder.boolean(),
                builder.integer_in(_ranges(events)),
                math.floor(unit.seconds * self._per_second),
            )
            self._second[index] = second
            for storage, end in zip(unit.storages, last, strict=True):
                held = builder.integer(events[0], max(end, events[-1]))
                builder.require(((1, held), (-1, second.start)), at_least=0, when=(second.is_there,))
                # What is read after the second run is read from it.
                builder.require(
                    ((1, second.start), (-1, self._end[storage][0])), at_least=1, when=(second.is_there,)
                )
                self._end[storage].append(held)

    def _add_reads(self) -> None:
        """Each read happens within an interval."""
        units = self.units
        for position, reads in enumerate(units.reads):
            for storage in reads:
                self._read(storage, None, self._time(position), ())
        for storage, is_output in enumerate(units.is_output):
            if is_output:
                self._read(storage, None, self._time(len(units.order)), ())
        for index, second in self._second.items():
            for storage in units.units[index].reads:
                self._read(storage, second.start, 0, (second.is_there,))

    def _read(self, storage: int, reader: int | None, time: int, when: tuple[int, ...]) -> None:
        """A read at a variable's time, or at a fixed one, wherever the literals are true."""
        builder = self._builder
        own = () if reader is None else ((-1, reader),)
        owner = self.units.unit_of[storage]
        second = self._second.get(owner)
        first = self._end[storage][0]
        if second is None or (reader is None and time < self._event(self.units.units[owner].first, owner)):
            builder.require(((1, first), *own), at_least=time, when=when)
            return
        choice = builder.boolean()
        self._within_first.append((choice, reader, time, first))
        builder.require(((1, first), *own), at_least=time, when=(*when, choice))
        otherwise = (*when, -choice - 1)
        builder.require(((1, second.is_there),), at_least=1, when=otherwise)
        builder.require(((1, second.start), *own), at_most=time - 1, when=otherwise)
        builder.require(((1, self._end[storage][1]), *own), at_least=time, when=otherwise)

    def _add_bytes(self, budget_bytes: int) -> None:
        step, builder = self.units.step, self._builder
        unit_bytes = math.gcd(*step.storage_bytes, *step.workspace) or 1
        intervals: list[int] = []
        demands: list[int] = []
        for storage, owner in enumerate(self.units.unit_of):
            if owner < 0 or not step.storage_bytes[storage]:
                continue
            starts = [Linear(constant=self._time(self.units.units[owner].position))]
            whens: list[int | None] = [None]
            if owner in self._second:
                starts.append(Linear.of(self._second[owner].start))
                whens.append(self._second[owner].is_there)
            for start, end, when in zip(starts, self._end[storage], whens, strict=True):
                intervals.append(builder.span(start, Linear.of(end, 1, 1), when=when))
                demands.append(step.storage_bytes[storage] // unit_bytes)
        for position, node in enumerate(self.units.order):
            if step.workspace[node]:
                intervals.append(builder.interval(Linear(constant=self._time(position)), 1))
                demands.append(step.workspace[node] // unit_bytes)
        for index, second in self._second.items():
            workspace = self.units.units[index].workspace
            if workspace:
                intervals.append(builder.interval(Linear.of(second.start), 1, when=second.is_there))
                demands.append(workspace // unit_bytes)
        room = max(budget_bytes - step.persistent_bytes, 0) // unit_bytes
        builder.cumulative(intervals, demands, Linear(constant=room))

    def _hint(self, sequence: Sequence[int]) -> None:
        """Values of all variables in a sequence."""
        units, builder = self.units, self._builder
        values: dict[int, int] = {}
        evaluator = Evaluator(units.step, sequence)
        runs: dict[int, int] = {}
        for stage, index in sorted(units.items_of(sequence)):
            if index in self._second and index in self._rank[stage]:
                runs.setdefault(index, self._event(stage, index))
        for index, second in self._second.items():
            values[second.is_there] = int(index in runs)
            first_event = self._event(units.units[index].first, index)
            values[second.start] = runs.get(index, first_event)
        times = self._times(evaluator)
        for storage, ends in enumerate(self._end):
            index = units.unit_of[storage]
            for number, end in enumerate(ends):
                low = (
                    self._time(units.units[index].position)
                    if not number
                    else values[self._second[index].start]
                )
                spans = evaluator.spans[storage]
                last = low
                if number < len(spans) and (not number or index in runs):
                    last = times(spans[number][1])
                values[end] = max(low, last)
        for choice, reader, time, first in self._within_first:
            at = time if reader is None else values[reader]
            values[choice] = int(values[first] >= at)
        for variable, value in values.items():
            builder.hint(variable, value)

    def _times(self, evaluator: Evaluator) -> _Times:
        return _Times(self.units, self._offset, self._rank, evaluator)


class _Times:
    """The events at which the executions of a sequence happen."""

    def __init__(
        self,
        units: StageUnits,
        offset: Sequence[int],
        rank: Sequence[dict[int, int]],
        evaluator: Evaluator,
    ) -> None:
        self._offset = offset
        self._rank = rank
        self._node_of = evaluator.node_of
        self._place = {node: place for place, node in enumerate(units.order)}
        self._anchor = evaluator.anchor_of
        self._unit = {node: index for index, unit in enumerate(units.units) for node in unit.nodes}

    def __call__(self, execution: int) -> int:
        if execution == TO_END:
            return self._offset[-1] - 1
        if execution in self._place:
            return self._offset[self._place[execution] + 1] - 1
        stage = self._place.get(self._anchor(execution), len(self._place))
        index = self._unit.get(self._node_of[execution], -1)
        return self._offset[stage] + self._rank[stage].get(index, 0)


def _ranges(points: Sequence[int]) -> list[tuple[int, int]]:
    """Ascending points as ranges with no gaps inside and gaps between them."""
    ranges: list[tuple[int, int]] = []
    for point in points:
        if ranges and ranges[-1][1] == point - 1:
            ranges[-1] = (ranges[-1][0], point)
        else:
            ranges.append((point, point))
    return ranges
