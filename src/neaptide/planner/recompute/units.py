"""Units: all storages that one node creates. They are held, dropped and recomputed together.

The nodes that recompute a unit are its creator and those that overwrite what it creates. Which of those count depends
on when the unit is needed: the units of the forward part count the writers in it, the units of plans in stages count
all of them, and the views as well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np

from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.instances import TO_END
from neaptide.schedule.problem import StepProblem


@dataclass(frozen=True, slots=True)
class Unit:
    """What one node creates, and what it takes to recompute it."""

    creator: int
    storages: tuple[int, ...]
    nodes: tuple[int, ...]  # that recompute the storages, in the order in which they run
    seconds: float
    nbytes: int  # of the storages
    workspace: int  # most scratch bytes of the nodes
    reads: tuple[int, ...]  # storages of other units that the nodes need, ascending
    is_refused: bool  # one of the nodes may not run again


@dataclass(frozen=True, slots=True)
class ForwardUnit(Unit):
    """A unit of the forward part, first made at a position and last touched in this part at another."""

    position: int
    last_use: int
    operands: tuple[int, ...]  # creators of the units that its nodes read, ascending
    is_pinned: bool  # it must be held: it cannot be recomputed, or it is an output


@dataclass(frozen=True, slots=True)
class StageUnit(Unit):
    """A unit of a plan in stages: it may run again from its first stage to its last, not at all where that is before."""

    position: int
    first: int
    last: int


Kind = TypeVar("Kind", bound=Unit)


def unit_with(kind: type[Kind], unit: Unit, **more: Any) -> Kind:
    """A unit as a kind that tells more of it."""
    return kind(**{field.name: getattr(unit, field.name) for field in fields(Unit)}, **more)


def unit_of(step: StepProblem, creator: int, nodes: Iterable[int]) -> Unit:
    """The unit of a node, recomputed by some nodes, each once. O(nodes x operands)."""
    own = step.created[creator]
    ordered = tuple(nodes)
    read = {storage for node in ordered for storage in storages_needed(step, node)}
    return Unit(
        creator,
        own,
        ordered,
        sum(step.repeat_seconds[node] for node in ordered),
        sum(step.storage_bytes[storage] for storage in own),
        max(step.workspace[node] for node in ordered),
        tuple(sorted(s for s in read if step.creator[s] >= 0 and s not in own)),
        any(step.refusals[node] for node in ordered),
    )


def writers(step: StepProblem, creator: int) -> set[int]:
    """The other nodes that overwrite what a node creates."""
    return {writer for storage in step.created[creator] for writer in step.writers[storage]} - {creator}


def storages_needed(step: StepProblem, node: int) -> set[int]:
    """Storages of a node's operands; host scalars have none."""
    return {storage for value in step.operands[node] if (storage := step.value_storage[value]) >= 0}


@dataclass(frozen=True, slots=True)
class ForwardUnits:
    """The forward part of one order of first executions: up to the backward, or to the highest step without one."""

    order: tuple[int, ...]
    turning: int  # position at which the backward begins
    units: dict[int, ForwardUnit]  # by creator, in running order
    # By position from `turning` on, creators of the units that the node there reads.
    reads: tuple[tuple[int, ...], ...]
    # By position from `turning` on, bytes that are there whatever is held: persistent, workspace, what the
    # backward makes, pinned units.
    other_bytes: tuple[int, ...]
    # The same directly before the node of that position, without its outputs and workspace.
    between_bytes: tuple[int, ...]

    def missing(self, wanted: Iterable[int], there: Collection[int], known: Collection[int] = ()) -> set[int]:
        """Units that must be recomputed so that all wanted ones are there. O(units found + their operands).

        Those that are `known` to be missing, closed under what they need, are left out.
        """
        units = self.units
        found: set[int] = set()
        waiting = [u for u in wanted if u not in there and not units[u].is_pinned]
        while waiting:
            unit = waiting.pop()
            if unit not in found and unit not in known:
                found.add(unit)
                waiting.extend(u for u in units[unit].operands if u not in there and not units[u].is_pinned)
        return found

    def anchors(self, wanted: Iterable[tuple[int, int]], there: Collection[int]) -> dict[int, int]:
        """Units to recompute so that all wanted ones are there, with the first place at which each is needed.

        O(units found + their operands).
        """
        waiting = list(wanted)
        missing = self.missing((unit for unit, _ in waiting), there)
        found: dict[int, int] = {}
        while waiting:
            unit, place = waiting.pop()
            if unit in missing and (unit not in found or place < found[unit]):
                found[unit] = place
                waiting.extend((operand, place) for operand in self.units[unit].operands)
        return found

    def seconds(self, units: Iterable[int]) -> float:
        """Seconds of recomputing some units."""
        return sum(self.units[unit].seconds for unit in units)

    def nbytes(self, units: Iterable[int]) -> int:
        """Bytes of some units, without those that are pinned."""
        return sum(unit.nbytes for u in units if not (unit := self.units[u]).is_pinned)


def forward_units(step: StepProblem, order: Sequence[int]) -> ForwardUnits:
    """The units of an order without repetitions. O(size of the problem)."""
    evaluator = Evaluator(step, order)
    backward = (position for position, node in enumerate(order) if step.phases[node] == "backward")
    turning = next(backward, evaluator.peak_position)
    place = evaluator.place_of
    creators = [n for n in order[:turning] if step.created[n]]
    known = set(creators)
    outputs = {step.value_storage[v] for v in step.outputs}
    units = {}
    for creator in creators:
        makers = sorted(writer for writer in writers(step, creator) if place(writer) < turning)
        unit = unit_of(step, creator, (creator, *makers))
        touching = [p for s in unit.storages for n in step.roles[s] if (p := place(n)) < turning]
        units[creator] = unit_with(
            ForwardUnit,
            unit,
            position=place(creator),
            last_use=max(touching, default=place(creator)),
            operands=tuple(sorted({step.creator[s] for s in unit.reads} & known)),
            is_pinned=unit.is_refused or not outputs.isdisjoint(unit.storages),
        )
    reads = tuple(
        tuple(sorted({c for s in storages_needed(step, node) if (c := step.creator[s]) in known}))
        for node in order[turning:]
    )
    other, between = _other_bytes(evaluator, turning, units)
    return ForwardUnits(tuple(order), turning, units, reads, other, between)


def _other_bytes(
    evaluator: Evaluator, turning: int, units: dict[int, ForwardUnit]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Bytes that are there whatever is held, at and between the positions from `turning` on."""
    step = evaluator.problem
    count = len(evaluator.order)
    live, across = np.zeros((2, count + 2), dtype=np.int64)
    for storage, spans in enumerate(evaluator.spans):
        unit = units.get(step.creator[storage])
        if unit is not None and not unit.is_pinned:
            continue
        nbytes = step.storage_bytes[storage]
        for start, end in spans:
            first = int(evaluator.position[start])
            last = count - 1 if end == TO_END else int(evaluator.position[end])
            live[first] += nbytes
            across[first + 1] += nbytes
            live[last + 1] -= nbytes
            across[last + 1] -= nbytes
    here = (
        step.persistent_bytes + np.cumsum(live[:count]) + np.array(step.workspace, np.int64)[evaluator.order]
    )
    before = step.persistent_bytes + np.cumsum(across[:count])
    return tuple(here[turning:].tolist()), tuple(before[turning:].tolist())


@dataclass(frozen=True, slots=True)
class StageUnits:
    """Plans in stages: which units may run again in which stage, and who reads what.

    First executions follow one order. Stage t ends with the t-th of them; one stage more stands for the end. A repetition
    belongs to the stage whose first execution it precedes. Within a stage repetitions run in the order of the program
    (Jain et al. 2020, section 4.2, call this frontier-advancing). A unit may run again once it is complete, until something
    that it reads is overwritten, and only while somebody may still need it.
    """

    step: StepProblem
    order: tuple[int, ...]
    units: tuple[StageUnit, ...]  # in the order in which they run again within a stage
    unit_of: tuple[int, ...]  # by storage, its unit; -1 for what the caller owns
    # By storage, the last stage in which something may read it; -1 without a unit.
    needed_until: tuple[int, ...]
    # By position, storages with a unit that the first execution there needs and does not create.
    reads: tuple[tuple[int, ...], ...]
    is_output: tuple[bool, ...]  # by storage

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

    def sequence(self, items: Iterable[tuple[int, int]]) -> tuple[int, ...]:
        """The node sequence in which some units run again: (stage, unit) of each.

        Repetitions and views that nobody uses are left out. O(length x operands).
        """
        position = {node: place for place, node in enumerate(self.order)}
        again: list[set[int]] = [set() for _ in range(self.stages)]
        for stage, unit in items:
            # Views that come only later run there for the first time.
            again[stage].update(node for node in self.units[unit].nodes if position[node] < stage)
        blocks = [sorted(nodes) for nodes in again]
        self._drop_unused(blocks)
        return tuple(node for k, block in enumerate(blocks) for node in (*block, *self.order[k : k + 1]))

    def items_of(self, sequence: Sequence[int]) -> set[tuple[int, int]]:
        """The repetitions of a sequence that are in the space of plans in stages: (stage, unit)."""
        return self.items_at(repetition_pairs(sequence, self.step.node_count))

    def items_at(self, pairs: Iterable[tuple[int, int]]) -> set[tuple[int, int]]:
        """(stage, unit) of repetitions told by `repetition_pairs`, where units may run again there."""
        number_of = {unit.creator: number for number, unit in enumerate(self.units)}
        stage_of = {node: stage for stage, node in enumerate(self.order)}
        stage_of[self.step.node_count] = len(self.order)
        found = {
            (stage_of[before], number_of[node])
            for node, before in pairs
            if node in number_of and before in stage_of
        }
        return {(s, u) for s, u in found if self.units[u].first <= s <= self.units[u].last}

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
    # A unit's place among repetitions is that of the node with which it has its final version.
    creators = sorted((n for n in order if step.created[n]), key=lambda n: (max({n, *writers(step, n)}), n))
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
    # Who reads a unit comes after it, so all that may need it is known when it is its turn.
    for creator in reversed(creators):
        unit = _stage_unit(step, creator, position, needed_until)
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


def _stage_unit(
    step: StepProblem, creator: int, position: dict[int, int], needed_until: Sequence[int]
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
    )


@dataclass(frozen=True, slots=True)
class RecomputeUnit:
    """All that one node creates, recomputed before the first execution of a node; the node count stands for the end."""

    creator: int
    target: int  # the largest storage that the creator makes, which the unit is named after
    before: int
    nodes: tuple[int, ...]  # the creator, writers and views that run again there
    nbytes: int
    seconds: float


def recompute_units(evaluator: Evaluator) -> list[RecomputeUnit]:
    """The recomputations of a sequence, in running order of the steps that they are for."""
    step = evaluator.problem
    units = []
    for before in evaluator.anchors():
        block = evaluator.repeated(before)
        for place, creator in enumerate(block):
            created = step.created[creator]
            if not created:
                continue
            mine = {creator}
            for storage in created:
                mine.update(step.writers[storage], step.views[storage])
            rest = block[place + 1 :]
            end = rest.index(creator) if creator in rest else len(rest)
            nodes = (creator, *(node for node in rest[:end] if node in mine))
            units.append(
                RecomputeUnit(
                    creator,
                    max(created, key=lambda s: (step.storage_bytes[s], -s)),
                    before,
                    nodes,
                    sum(step.storage_bytes[s] for s in created),
                    sum(step.repeat_seconds[n] for n in nodes),
                )
            )
    return units


def repetition_pairs(sequence: Sequence[int], end: int) -> set[tuple[int, int]]:
    """(node, node before whose first execution it runs again) of a sequence; `end` stands for none."""
    found: set[tuple[int, int]] = set()
    waiting: list[int] = []
    seen: set[int] = set()
    for node in (*sequence, end):
        if node in seen:
            waiting.append(node)
        else:
            seen.add(node)
            found.update((repeated, node) for repeated in waiting)
            waiting = []
    return found
