"""Repetitions in a sequence: which nodes must run again so that a storage is there again, and is it legal.

Repetitions stand in blocks directly before the first execution of a node, sorted by node id. Program order is one
legal order, so a block reads every version that it makes in the order of the capture. The unit of a replay is all
that one node creates: the creator, the writers that have run by then, and the views that later steps use.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from neaptide.schedule.changes import Insert, Remove
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.instances import TO_END


@dataclass(frozen=True, slots=True)
class Closure:
    """What must be repeated before a step for a storage to be there, or why it cannot be.

    `held` are storages that are dead there by now and are held on to instead of being made again.
    """

    refusal: str
    nodes: tuple[int, ...] = ()
    seconds: float = 0.0
    held: tuple[int, ...] = ()


@dataclass(slots=True)
class _Draft:
    """A closure that is being grown before one step."""

    place: int
    start: int
    there: frozenset[int]
    light: float
    hold_from: int
    nodes: set[int] = field(default_factory=set)
    units: set[int] = field(default_factory=set)
    waiting: list[int] = field(default_factory=list)
    held: set[int] = field(default_factory=set)


class _RefusedError(Exception):
    """The closure cannot be grown; carries the reason. Never leaves this module."""


class Replays:
    """The legal ways to add repetitions to an evaluator's sequence and to take them back."""

    def __init__(self, evaluator: Evaluator) -> None:
        self.evaluator = evaluator
        self.problem = evaluator.problem

    def closure(
        self, storage: int, before: int, *, hold_share: float = 0.0, hold_from: int | None = None
    ) -> Closure:
        """What to repeat before the first execution of a node (node count: the end) to have a storage there.

        Operands that are dead by then are made again in turn, or held on to where they cannot be, or where they
        have at most `hold_share` of the storage's bytes, or where they are still needed at position `hold_from`.
        O(size of the closure).
        """
        if self.problem.creator[storage] < 0:
            return Closure("the caller owns it")
        place = self.evaluator.place_of(before)
        there = frozenset(self.evaluator.repeated(before))
        light = hold_share * self.problem.storage_bytes[storage]
        draft = _Draft(place, place - len(there), there, light, place if hold_from is None else hold_from)
        draft.waiting.append(storage)
        try:
            while draft.waiting:
                self._grow(draft, draft.waiting.pop())
        except _RefusedError as refused:
            return Closure(str(refused))
        nodes = tuple(sorted(draft.nodes))
        return Closure(
            "", nodes, sum(self.problem.repeat_seconds[n] for n in nodes), tuple(sorted(draft.held))
        )

    def insertion(self, closure: Closure, before: int) -> Insert:
        """The change that makes a closure happen."""
        return Insert(closure.nodes, before)

    def next_anchor(self, place: int) -> int:
        """The first node at or after a position that runs there for the first time; the node count for the end."""
        count = self.problem.node_count
        order = self.evaluator.order
        while place < len(order):
            if order[place] < count:
                return int(order[place])
            place += 1
        return count

    def removal(self, creator: int, before: int) -> Remove | None:
        """The change that takes back the replay of all that a node creates; None when others depend on it."""
        problem = self.problem
        place = self.evaluator.place_of(before)
        block = self.evaluator.repeated(before)
        if problem.is_plain[creator]:
            return Remove((creator,) if creator in block else (), before)
        mine = set(problem.created[creator])
        gone = {creator}
        for storage in mine:
            gone.update(problem.writers[storage], problem.views[storage])
        for node in block:
            if node not in gone:
                for read, version in problem.reads[node]:
                    if read in mine and self._version(read, place) != version:
                        return None
        nodes = tuple(n for n in block if n in gone)
        # Made again more than once there: one of them is for another's sake.
        return None if len(set(nodes)) < len(nodes) else Remove(nodes, before)

    def _grow(self, draft: _Draft, storage: int) -> None:
        """Add the unit of a storage."""
        creator = self.problem.creator[storage]
        if creator in draft.units:
            return
        draft.units.add(creator)
        if self.problem.is_plain[creator]:
            self._add(draft, creator)
            return
        for node in self._unit(creator, draft):
            self._add(draft, node)

    def _unit(self, creator: int, draft: _Draft) -> set[int]:
        """Creator, the writers that have run, and the views that are used from here on."""
        problem, evaluator = self.problem, self.evaluator
        unit = {creator}
        for storage in problem.created[creator]:
            unit.update(w for w in problem.writers[storage] if evaluator.place_of(w) < draft.place)
            used: set[int] = set()
            for view in reversed(problem.views[storage]):
                if evaluator.place_of(view) >= draft.place:
                    continue
                for value in problem.results[view]:
                    if value in used or self._is_used_from(value, draft.start):
                        unit.add(view)
                        used.update(problem.operands[view])
        return unit

    def _is_used_from(self, value: int, start: int) -> bool:
        places, executions = self.evaluator.places, self.evaluator.executions
        return value in self.problem.outputs or any(
            places[execution] >= start
            for node in self.problem.consumers[value]
            for execution in executions[node]
        )

    def _add(self, draft: _Draft, node: int) -> None:
        """Add one node, and see to its operands."""
        if node in draft.nodes or node in draft.there:
            return
        problem = self.problem
        if problem.refusals[node]:
            raise _RefusedError(f"node {node} {problem.refusals[node]}")
        draft.nodes.add(node)
        versions: dict[int, int] | None = None
        for value in problem.operands[node]:
            storage = problem.value_storage[value]
            if storage < 0:
                continue
            is_current = True
            if problem.writers[storage]:
                versions = dict(problem.reads[node]) if versions is None else versions
                wanted = versions.get(storage)
                is_current = wanted is None or self._version(storage, draft.place) == wanted
            if problem.creator[storage] < 0:
                if not is_current:
                    raise _RefusedError(
                        f"node {node} reads {problem.storage_names[storage]}, overwritten before"
                    )
                continue
            self._provide(draft, node, value, is_current=is_current)

    def _provide(self, draft: _Draft, node: int, value: int, *, is_current: bool) -> None:
        """Have an operand bound to a live instance when the block runs."""
        problem = self.problem
        storage = problem.value_storage[value]
        creator = problem.creator[storage]
        is_made_here = creator in draft.units or creator in draft.there
        if not is_made_here:
            last = self._last_place(storage, draft.place)
            if last < draft.start:
                # It is dead by then.
                is_light = problem.storage_bytes[storage] <= draft.light
                if is_current and (is_light or last >= draft.hold_from or self._unit_refusal(creator, draft)):
                    draft.held.add(storage)
                else:
                    draft.waiting.append(storage)
                    is_made_here = True
            elif not is_current:
                if refusal := self._unit_refusal(creator, draft):
                    raise _RefusedError(f"node {node} reads {problem.storage_names[storage]}, {refusal}")
                draft.waiting.append(storage)
                is_made_here = True
        if problem.views[storage] and (is_made_here or len(self.evaluator.executions[creator]) > 1):
            self._bind(draft, value)

    def _bind(self, draft: _Draft, value: int) -> None:
        """Repeat the chain of views that leads to a value, so that it sees the latest instance."""
        problem = self.problem
        storage = problem.value_storage[value]
        role = problem.roles[storage]
        for node in reversed(problem.views[storage]):
            if value in role[node].makes:
                self._add(draft, node)
                value = role[node].needs[0]

    def _last_place(self, storage: int, place: int) -> int:
        """Where the instances that begin before a position end: the largest; -1 when there is none."""
        places = self.evaluator.places
        last = -1
        for start, end in self.evaluator.spans[storage]:
            if places[start] < place:
                if end == TO_END:
                    return len(self.evaluator.order)
                last = max(last, places[end])
        return last

    def _unit_refusal(self, creator: int, draft: _Draft) -> str:
        """Why what a node creates cannot be made again here, looking at the unit alone; empty when it can."""
        problem = self.problem
        if problem.is_plain[creator]:
            return ""
        for node in self._unit(creator, draft):
            if problem.refusals[node]:
                return f"node {node} {problem.refusals[node]}"
            for storage, version in problem.reads[node]:
                if problem.is_persistent[storage] and self._version(storage, draft.place) != version:
                    return f"node {node} reads {problem.storage_names[storage]}, overwritten before"
        return ""

    def _version(self, storage: int, place: int) -> int:
        """Version of a storage at a position: how many of its writers have run for the first time."""
        writers = self.problem.writers[storage]
        return sum(self.evaluator.place_of(w) < place for w in writers) if writers else 0
