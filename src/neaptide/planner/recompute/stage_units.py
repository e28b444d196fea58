"""Plans in stages: which units may run again in which stage, and who reads what. The search space of the exact solvers.

First executions follow one order. Stage t ends with the t-th of them; one stage more stands for the end. A repetition
belongs to the stage whose first execution it precedes. Within a stage repetitions run in the order of the program
(Jain et al. 2020, section 4.2, call this frontier-advancing). A unit may run again once it is complete, until something
that it reads is overwritten, and only while somebody may still need it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from neaptide.planner.recompute.units import Unit, storages_needed, unit_of, unit_with, writers
from neaptide.schedule.problem import StepProblem


@dataclass(frozen=True, slots=True)
class StageUnit(Unit):
    """A unit, with the stages in which it may run again.

    Attributes:
        position: of the creator's first execution.
        first: first stage in which it may run again.
        last: last one; before `first` if it may not.
        is_backward: the creator belongs to the backward.
    """

    position: int
    first: int
    last: int
    is_backward: bool


@dataclass(frozen=True, slots=True)
class StageUnits:
    """The units of one order of first executions.

    Attributes:
        step: the problem.
        order: the nodes as they run first.
        units: in the order in which they run again within a stage.
        unit_of: by storage, its unit; -1 for what the caller owns.
        needed_until: by storage, the last stage in which something may read it; -1 without a unit.
        reads: by position, storages with a unit that the first execution there needs and does not create.
        is_output: by storage, whether it must be there at the end.
    """

    step: StepProblem
    order: tuple[int, ...]
    units: tuple[StageUnit, ...]
    unit_of: tuple[int, ...]
    needed_until: tuple[int, ...]
    reads: tuple[tuple[int, ...], ...]
    is_output: tuple[bool, ...]

    @property
    def stages(self) -> int:
        """Number of stages, that of the end included."""
        return len(self.order) + 1

    def again(self, stage: int) -> list[int]:
        """Units that may run again in a stage, in running order."""
        return [u for u, unit in enumerate(self.units) if unit.first <= stage <= unit.last]

    def choices(self) -> int:
        """Pairs of a unit and a stage in which it may run again."""
        return sum(max(unit.last - unit.first + 1, 0) for unit in self.units)

    def sequence(self, repeated: Sequence[Sequence[int]]) -> tuple[int, ...]:
        """The node sequence in which stage t first recomputes the units `repeated[t]` again.

        Repetitions and views that nobody uses are left out. O(length x operands).
        """
        blocks = [self._nodes(units, stage) for stage, units in enumerate(repeated)]
        self._drop_unused(blocks)
        sequence: list[int] = []
        for stage, block in enumerate(blocks):
            sequence.extend(block)
            sequence.extend(self.order[stage : stage + 1])
        return tuple(sequence)

    def repeated_in(self, sequence: Sequence[int]) -> list[list[int]]:
        """By stage, the units whose creators a sequence runs again there."""
        index = {unit.creator: u for u, unit in enumerate(self.units)}
        found: list[list[int]] = [[] for _ in range(self.stages)]
        seen: set[int] = set()
        stage = 0
        for node in sequence:
            if node not in seen:
                seen.add(node)
                stage += 1
            elif node in index and index[node] not in found[stage]:
                found[stage].append(index[node])
        return [sorted(units) for units in found]

    def _nodes(self, units: Sequence[int], stage: int) -> list[int]:
        """Nodes that recompute units in a stage: views that come only later run there for the first time."""
        if not units:
            return []
        before = set(self.order[:stage])
        return sorted(node for u in units for node in self.units[u].nodes if node in before)

    def _drop_unused(self, blocks: list[list[int]]) -> None:
        """Walk backwards with the values, by storage, that are still read; what makes none of them goes."""
        step = self.step
        wanted: dict[int, set[int]] = {}

        def want(values: Iterable[int]) -> None:
            for value in values:
                if (storage := step.value_storage[value]) >= 0:
                    wanted.setdefault(storage, set()).add(value)

        want(step.outputs)
        for stage in range(len(blocks) - 1, -1, -1):
            for node in self.order[stage : stage + 1]:
                want(step.operands[node])
            kept: list[int] = []
            for node in reversed(blocks[stage]):
                made = [(s, v) for v in step.results[node] if (s := step.value_storage[v]) >= 0]
                # A view is there for its own values alone, a creator or writer for all on the storage.
                is_view = any(node in step.views[s] for s, _ in made)
                if not any(v in wanted.get(s, ()) if is_view else wanted.get(s) for s, v in made):
                    continue
                kept.append(node)
                for storage, value in made:
                    wanted.get(storage, set()).discard(value)
                for storage in step.created[node]:
                    wanted.pop(storage, None)
                want(step.operands[node])
            blocks[stage] = kept[::-1]


def stage_units(step: StepProblem, order: Sequence[int]) -> StageUnits:
    """The units of an order of first executions. O(size of the problem)."""
    position = {node: place for place, node in enumerate(order)}
    creators = sorted((node for node in order if step.created[node]), key=lambda n: (_complete(step, n), n))
    index_of = [-1] * len(step.storage_bytes)
    for index, creator in enumerate(creators):
        for storage in step.created[creator]:
            index_of[storage] = index
    count = len(order)
    needed_until = [-1] * len(index_of)
    for storage, index in enumerate(index_of):
        if index >= 0:
            needed_until[storage] = max(position[node] for node in step.roles[storage])
    is_output = [False] * len(index_of)
    for value in step.outputs:
        storage = step.value_storage[value]
        if storage >= 0 and index_of[storage] >= 0:
            needed_until[storage] = count
            is_output[storage] = True
    units: list[StageUnit] = []
    # Who reads a unit comes behind it, so all that may need it is known when it is its turn.
    for creator in reversed(creators):
        unit = _unit(step, creator, position, needed_until)
        units.append(unit)
        if unit.first <= unit.last:
            for storage in unit.reads:
                needed_until[storage] = max(needed_until[storage], unit.last)
    reads = tuple(
        tuple(sorted(s for s in storages_needed(step, node) if index_of[s] >= 0 and step.creator[s] != node))
        for node in order
    )
    return StageUnits(
        step, tuple(order), tuple(units[::-1]), tuple(index_of), tuple(needed_until), reads, tuple(is_output)
    )


def _complete(step: StepProblem, creator: int) -> int:
    """The node with which all that a node creates has its final version: its place among repetitions."""
    return max({creator, *writers(step, creator)})


def _unit(
    step: StepProblem,
    creator: int,
    position: dict[int, int],
    needed_until: Sequence[int],
) -> StageUnit:
    makers = {creator, *writers(step, creator)}
    views = {view for storage in step.created[creator] for view in step.views[storage]}
    unit = unit_of(step, creator, sorted(makers | views))
    until = -1 if unit.is_refused else max(needed_until[s] for s in unit.storages)
    for node in unit.nodes:
        for storage, version in step.reads[node]:
            if storage not in unit.storages and len(step.writers[storage]) > version:
                # It runs before the node that overwrites what it reads, at the latest.
                until = min(until, position[step.writers[storage][version]])
    return unit_with(
        StageUnit,
        unit,
        position=position[creator],
        first=max(position[node] for node in makers) + 1,
        last=until,
        is_backward=step.phases[creator] == "backward",
    )
