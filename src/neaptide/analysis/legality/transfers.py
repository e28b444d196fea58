"""Are the transfers of a schedule legal: does every step find its storages on the device, with the right contents.

Transfers change no name and no version, so they are checked after everything else, by which instances each step
touches and overwrites.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from neaptide.analysis.kinds import state_storages, storages_between_steps
from neaptide.errors import VerifyError
from neaptide.ir.graph import Graph
from neaptide.ir.schedule import Schedule, Step, StepKind

InstanceKey = tuple[int, int]
"""Storage and occurrence."""


@dataclass(frozen=True, slots=True)
class StepUse:
    """What a step that runs a node does with storage instances: those that it needs or makes, and overwrites."""

    touched: frozenset[InstanceKey]
    overwritten: frozenset[InstanceKey]


class _Phase(Enum):
    """Where an instance is; the value ends the sentence `it is ...`."""

    THERE = "on the device"
    LEAVING = "being stored: the wait for the copy is missing"
    AWAY = "away on the host"
    COMING = "being loaded: the wait for the copy is missing"


def check_transfers(
    graph: Graph,
    schedule: Schedule,
    uses: Sequence[StepUse],
    kept: Collection[InstanceKey],
    *,
    is_body: bool = False,
) -> None:
    """Check the steps that store, load and wait. O(steps).

    A storage that is stored is on the device, is needed again, and has no part in a collective, which may still be at
    work on it. Of the caller's only parameters, gradients and optimizer states are stored; the end of the schedule needs
    them. It does not need parameters and optimizer states that are on the host when the schedule begins, and these must be
    there when it ends; nor optimizer states that the schedule makes. Until the wait for the copy nothing overwrites it. From then to the wait
    for its load nothing touches it, views included. It is back before a later segment begins: what lies between
    segments does not know of it. Between two operations what leaves comes before what returns, so that bytes are
    highest while operations run. In the body of a loop all of this holds for one trip, and what the body is handed stays
    on the device: it is part of a storage around the loop.
    """
    if schedule.has_own_transfers:
        _Checker(graph, schedule, uses, kept, is_body=is_body).run()


class _Checker:
    def __init__(
        self,
        graph: Graph,
        schedule: Schedule,
        uses: Sequence[StepUse],
        kept: Collection[InstanceKey],
        *,
        is_body: bool,
    ) -> None:
        self.graph = graph
        self.schedule = schedule
        self.uses = uses
        self.owned = set(graph.input_storages()) - set(() if is_body else state_storages(graph))
        self.refusal = (
            "the loop hands it to its body"
            if is_body
            else "the caller owns it, and it is no state of the step"
        )
        self.in_collective = storages_in_collectives(graph)
        self.segment_of = {
            node: index
            for index, segment in enumerate(graph.segments)
            for node in range(segment.start, segment.end)
        }
        self.last_use = {key: position for position, use in enumerate(uses) for key in use.touched}
        mine = [(storage, 0) for storage in graph.input_storages()]
        self.last_use |= dict.fromkeys([*kept, *mine], len(uses))
        self.made = set(mine)
        self.away_at_begin = {(storage, 0) for storage in schedule.away_at_begin()} & self.made
        self.moving = dict.fromkeys(self.away_at_begin, _Phase.AWAY)  # the others are there
        between = frozenset() if is_body else storages_between_steps(graph)
        self.not_between = self.away_at_begin - {(storage, 0) for storage in between}
        self.may_end_away = self.away_at_begin | {
            key for key in kept if key[0] in between and key not in self.made
        }
        self.position = 0
        self.segment = 0
        self.returns_before = False

    def run(self) -> None:
        for key in sorted(self.not_between):
            raise VerifyError(
                f"{self._name(key)} cannot be on the host when the steps begin",
                why="it is no parameter and no optimizer state of the step",
            )
        for index, step in enumerate(self.schedule.steps):
            if step.runs_node:
                self._run_node(step, index)
            elif step.moves_bytes:
                self._move(step, index)
        for key in sorted(self.away_at_begin - self.moving.keys()):
            raise VerifyError(
                f"the steps end while {self._name(key)} is on the device",
                why="it is on the host when the next run of them begins",
            )
        for key in sorted(self.moving):
            if key in self.may_end_away and self.moving[key] is _Phase.AWAY:
                continue
            raise VerifyError(
                f"the steps end while {self._name(key)} is not back", why=f"it is {self.moving[key].value}"
            )

    def _run_node(self, step: Step, index: int) -> None:
        segment = self.segment_of.get(step.target, 0)
        if step.occurrence == 0 and segment > self.segment:
            for key in sorted(self.moving):
                border = f"segment {self.graph.segments[segment].name!r} begins"
                raise self._broken(step, index, key, f"{border} while it is {self.moving[key].value}")
            self.segment = segment
        use = self.uses[self.position]
        for key in sorted(use.touched & self.moving.keys()):
            if self.moving[key] is not _Phase.LEAVING:
                raise self._broken(step, index, key, f"it is {self.moving[key].value}")
            if key in use.overwritten:
                raise self._broken(step, index, key, f"it is overwritten while it is {_Phase.LEAVING.value}")
        self.made |= use.touched
        self.position += 1
        self.returns_before = False

    def _move(self, step: Step, index: int) -> None:
        key = (step.target, step.occurrence)
        found = self.moving.get(key, _Phase.THERE)
        if step.target in self.owned:
            raise self._broken(step, index, key, self.refusal)
        if key not in self.made:
            raise self._broken(step, index, key, "it is not made yet")
        if self.last_use[key] < self.position:
            raise self._broken(step, index, key, "nothing needs it")
        if step.kind is StepKind.STORE:
            self._store(step, index, key, found)
        elif step.kind is StepKind.LOAD:
            self._load(step, index, key, found)
        elif found is _Phase.LEAVING:
            self._leave_first(step, index, key)
            self.moving[key] = _Phase.AWAY
        elif found is _Phase.COMING:
            self.returns_before = True
            del self.moving[key]
        else:
            raise self._broken(step, index, key, f"it is {found.value}, and no copy is under way")

    def _store(self, step: Step, index: int, key: InstanceKey, found: _Phase) -> None:
        if found is not _Phase.THERE:
            raise self._broken(step, index, key, f"it is {found.value}")
        if key[0] in self.in_collective:
            node = self.graph.nodes[self.in_collective[key[0]]]
            raise self._broken(
                step, index, key, f"node {node.id} ({node.op}) takes part in a collective with it"
            )
        self._leave_first(step, index, key)
        self.moving[key] = _Phase.LEAVING

    def _load(self, step: Step, index: int, key: InstanceKey, found: _Phase) -> None:
        if found is not _Phase.AWAY:
            never = ", and was not stored" if found is _Phase.THERE else ""
            raise self._broken(step, index, key, f"it is {found.value}{never}")
        if self.position == len(self.uses):
            raise self._broken(step, index, key, "no operation comes after it")
        self.returns_before = True
        self.moving[key] = _Phase.COMING

    def _leave_first(self, step: Step, index: int, key: InstanceKey) -> None:
        if self.returns_before:
            raise self._broken(
                step, index, key, "between two operations, what leaves comes before what returns"
            )

    def _broken(self, step: Step, index: int, key: InstanceKey, why: str) -> VerifyError:
        node = self.graph.nodes[step.target] if step.runs_node else None
        does = f"{step.kind} {self._name(key)}" if node is None else f"run node {node.id} ({node.op})"
        where = None if node is None else node.source.location or None
        told = why if node is None else f"{self._name(key)}: {why}"
        return VerifyError(f"step {index} cannot {does}", where=where, why=told)

    def _name(self, key: InstanceKey) -> str:
        storage, occurrence = key
        name = f"storage {storage}"
        if 0 <= storage < len(self.graph.storages):
            name = self.graph.storages[storage].name or name
        return f"{name} #{occurrence}" if occurrence else name


def storages_in_collectives(graph: Graph) -> Mapping[int, int]:
    """Storages that a collective reads, writes or makes, with its node."""
    return {
        storage: node.id
        for node in graph.nodes
        if node.effects.collective is not None
        for value in (*node.inputs, *node.outputs)
        if (storage := graph.values[value].storage) is not None
    }
