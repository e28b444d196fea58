"""Plays what happens on one storage: is every name bound, is every version right, and when are there bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from neaptide.ir.nodes import Access
from neaptide.schedule.instances import TO_END
from neaptide.schedule.problem import Role
from neaptide_peers.candidates.change import Change
from neaptide_peers.candidates.places import Places


@dataclass(slots=True)
class Instance:
    """Bytes of a storage, from the moment that makes them (None for the caller's) to the last that uses them.

    `end` is None for outputs.
    """

    start: int | None
    end: int | None
    version: int = 0


class NotLegalError(Exception):
    """What would break a rule."""


def plain_span(change: Change, places: Places, storage: int) -> tuple[int, int | None] | None:
    """When a storage is made and last used, where one execution makes it, nothing overwrites it, and all run once.

    Then no rule is left to break but that what is needed is made before, which holds value by value. None for other
    storages, which are to be played. O(nodes that use the storage).
    """
    standing, old = change.standing, change.edited.storage_of[storage]
    if standing.has_repetitions or storage in change.overwritten or old in standing.inputs_on:
        return None
    start: int | None = None
    last = -1
    for node, creates in change.touched_users(storage).items():
        moment = places.first(node)
        last = max(last, moment)
        if creates:
            if start is not None:
                return None
            start = moment
    if old >= 0:
        if standing.problem.writers[old]:
            return None
        last = max(last, _last_kept(change, places, old))
        creator = standing.problem.creator[old]
        if creator >= 0 and not change.is_set_aside(creator):
            if start is not None:
                return None
            start = places.behind(standing.runs[creator][0])
    if start is None:
        return None
    return start, None if change.outputs_on(storage) else last


def _last_kept(change: Change, places: Places, old: int) -> int:
    """The last moment at which what is not touched uses an old storage; -1 for none. Without repetitions."""
    standing = change.standing
    _, end = standing.evaluator.spans[old][0] if standing.evaluator.spans[old] else (0, TO_END)
    if end != TO_END and not change.is_set_aside(end):
        return places.behind(standing.runs[end][0])
    kept = [standing.runs[user][0] for user in standing.problem.roles[old] if not change.is_set_aside(user)]
    return places.behind(max(kept)) if kept else -1


class StorageReplay:
    """The instances of one storage of a changed graph.

    Raises:
        NotLegalError: a step does not find the bytes that the graph says, or comes before what it waits for.
    """

    def __init__(self, change: Change, places: Places, storage: int) -> None:
        self._change, self._places, self._storage = change, places, storage
        self._roles = change.roles(storage)
        self._names: dict[int, Instance] = {}
        self.instances: list[Instance] = []
        nodes = change.graph.nodes
        self._writers = {
            access.version: node
            for node in self._roles
            for access in nodes[node].effects.writes
            if access.storage == storage
        }
        old = change.edited.storage_of[storage]
        inputs = change.standing.inputs_on.get(old, ())
        if inputs:
            self._names = dict.fromkeys(inputs, self._begin(None))
        events = [
            (moment, node, number)
            for node in self._roles
            for number, moment in enumerate(places.moments(node))
        ]
        for moment, node, number in sorted(events):
            self._run(moment, node, self._roles[node], number)
        if self._writers:
            self._check_first_executions()
        self._keep_outputs()

    def _begin(self, moment: int | None) -> Instance:
        made = Instance(moment, moment)
        self.instances.append(made)
        return made

    def _run(self, moment: int, node: int, role: Role, number: int) -> None:
        names = self._names
        seen: list[Instance] = []
        for value in role.needs:
            found = names.get(value)
            if found is None:
                raise NotLegalError(f"node {node} would run before what it needs is made")
            found.end = moment
            if found not in seen:
                seen.append(found)
        if self._writers:
            self._check_versions(node, seen, number)
        if role.makes:
            if role.creates:
                made = self._begin(moment)
            elif len(seen) == 1:
                made = seen[0]
            else:
                raise NotLegalError(f"the operands of node {node} would hold {len(seen)} instances")
            for value in role.makes:
                names[value] = made

    def _check_versions(self, node: int, seen: list[Instance], number: int) -> None:
        effects = self._change.graph.nodes[node].effects
        reads, writes = (effects.reads, effects.writes) if not number else self._repeated(node)
        for access in self._mine(reads):
            if not seen or any(instance.version != access.version for instance in seen):
                raise NotLegalError(f"node {node} would read another version than it must")
        for access in self._mine(writes):
            if not seen or any(instance.version != access.version - 1 for instance in seen):
                raise NotLegalError(f"node {node} would overwrite another version than it must")
            if len(seen) > 1:
                raise NotLegalError(f"the operands of node {node} would hold {len(seen)} instances")
            seen[0].version = access.version

    def _repeated(self, node: int) -> tuple[tuple[Access, ...], tuple[Access, ...]]:
        change = self._change
        rule = change.standing.pricing.repeat_rule(change.graph, change.graph.nodes[node])
        return rule.reads, rule.writes

    def _mine(self, accesses: tuple[Access, ...]) -> Iterator[Access]:
        return (access for access in accesses if access.storage == self._storage)

    def _check_first_executions(self) -> None:
        """Whoever overwrites waits for all that read what was there before, and for who wrote it."""
        first = self._places.first
        for node in self._roles:
            for access in self._mine(self._change.graph.nodes[node].effects.reads):
                writer = self._writers.get(access.version + 1)
                if writer is not None and writer != node and first(writer) < first(node):
                    raise NotLegalError(f"node {writer} would overwrite what node {node} has yet to read")
        for version, node in self._writers.items():
            writer = self._writers.get(version - 1)
            if writer is not None and first(node) < first(writer):
                raise NotLegalError(f"node {node} would overwrite before node {writer}")

    def _keep_outputs(self) -> None:
        change = self._change
        for value in change.outputs_on(self._storage):
            instance = self._names.get(value)
            if instance is None or instance.version != max(self._writers, default=0):
                raise NotLegalError("an output would not hold its last version")
            instance.end = None
