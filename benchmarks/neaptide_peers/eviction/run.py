"""A program run on paper, node by node, under a budget in bytes: it evicts what does not fit and recomputes what is needed.

Three rules make them legal in a program that writes in place:

* A unit is recomputed by its creator and its writers, which read their operands again. So it is recomputed, if it is
  gone, just before one of these operands is overwritten, and stays from then on.
* A unit that cannot be recomputed is dropped after its last use only if no evicted unit depends on it. The units that
  depend on it stay from then on (banishing, section 4.2 of the paper).
* A view of an evicted storage is taken again with the storage.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from neaptide.errors import NeaptideError
from neaptide_peers.eviction.policy import EvictionPolicy, Heuristic
from neaptide_peers.eviction.run_state import RunState
from neaptide_peers.eviction.settings import SETTINGS
from neaptide_peers.eviction.units import RunUnits

Task: TypeAlias = Generator["Task", None, None]
"""Work that waits for other work; run by a loop, since chains of evicted units are longer than Python's stack."""


class SimulationStopped(NeaptideError):  # noqa: N818 - what happened is name enough
    """A simulated run was stopped from outside, so there is no sequence."""


@dataclass(frozen=True, slots=True)
class EvictionTotals:
    """What happened in a run.

    Attributes:
        peak_bytes: most bytes at any execution, with what the caller owns, and with workspace.
        evicted: units that were evicted while they were still needed.
        executions: of nodes, repetitions included.
        gave_up: nothing was evicted any more after too many executions.
    """

    peak_bytes: int
    evicted: int
    executions: int
    gave_up: bool


class EvictionRun:
    """One run of a program.

    Args:
        units: of the program, under the order in which its nodes run.
        chosen: what is evicted first.
        budget_bytes: highest peak with workspace, what the caller owns included. It is passed where nothing is left to
            evict.
        has_time: asked before each execution.

    Attributes:
        sequence: nodes as they have run; a repeated one is a recomputation.
    """

    def __init__(
        self,
        units: RunUnits,
        chosen: Heuristic,
        budget_bytes: int,
        has_time: Callable[[], bool] = lambda: True,
    ) -> None:
        self.sequence: list[int] = []
        self._units = units
        self._problem = units.problem
        self._budget = budget_bytes
        self._has_time = has_time
        self._state = RunState(units)
        self._policy = EvictionPolicy(self._state, chosen)
        self._changed: Callable[[int], None] = self._policy.neighbourhoods.changed
        self._instance = [0] * len(units.problem.storage_bytes)
        # Values on what the caller owns are bound to the only instance there is.
        self._bound = [
            0 if s < 0 or units.problem.creator[s] < 0 else -1 for s in units.problem.value_storage
        ]
        self._lingering: dict[int, None] = {}
        self._spare: list[int] = []
        self._peak = units.problem.persistent_bytes
        self._evicted = 0
        self._most_executions = SETTINGS.most_executions * units.problem.node_count
        self._gave_up = False

    def run(self) -> EvictionTotals:
        """Run the whole program. O(executions x units that are there) and the walks of the policy.

        Raises:
            SimulationStopped: there is no time.
        """
        state = self._state
        for position, node in enumerate(self._units.order):
            if position in self._units.expiring:
                self._finish(self._secure(self._units.expiring[position]))
            self._finish(self._perform(node, again=False))
            self._release(position)
        self._finish(self._hand_back())
        assert state.position == self._problem.node_count
        return EvictionTotals(self._peak, self._evicted, len(self.sequence), self._gave_up)

    @staticmethod
    def _finish(task: Task) -> None:
        waiting = [task]
        while waiting:
            following = next(waiting[-1], None)
            if following is None:
                waiting.pop()
            else:
                waiting.append(following)

    # -- running

    def _perform(self, node: int, *, again: bool) -> Task:
        """Have everything that a node needs, make room, and run it."""
        locked = self._lock(self._problem.operands[node])
        yield from self._provide(self._problem.operands[node])
        created = self._problem.created[node]
        need = sum(self._problem.storage_bytes[s] for s in created) + self._problem.workspace[node]
        self._make_room(need)
        self._execute(node, again=again)
        self._unlock(locked)

    def _provide(self, values: Sequence[int]) -> Task:
        """Have values bound to what is there; recomputing one may evict another, so repeat until all are."""
        problem = self._problem
        while True:
            value = next((v for v in values if not self._is_bound(v)), None)
            if value is None:
                return
            storage = problem.value_storage[value]
            if self._state.present[storage]:
                yield self._perform(self._units.maker[value], again=True)
            else:
                yield self._remake(problem.creator[storage])

    def _is_bound(self, value: int) -> bool:
        storage = self._problem.value_storage[value]
        if storage < 0 or self._problem.creator[storage] < 0:
            return True
        return self._state.present[storage] and self._bound[value] == self._instance[storage]

    def _remake(self, unit: int) -> Task:
        """Run the creator of a unit again, and those of its writers that have run."""
        state = self._state
        for storage in self._problem.created[unit]:
            if state.present[storage]:
                self._drop(storage)
        state.locks[unit] += 1
        for node in self._units.chains[unit]:
            if node == unit or state.has_run(node):
                yield self._perform(node, again=True)
        self._unlock((unit,))

    def _execute(self, node: int, *, again: bool) -> None:
        state, problem = self._state, self._problem
        created = problem.created[node]
        if not self._has_time():
            raise SimulationStopped("a simulated run was stopped before its end")
        self.sequence.append(node)
        self._gave_up = self._gave_up or len(self.sequence) > self._most_executions
        state.note_run(node, problem.repeat_seconds[node] if again else problem.seconds[node])
        for storage in created:
            state.put(storage)
            self._instance[storage] += 1
        self._peak = max(self._peak, state.used_bytes + problem.workspace[node])
        for value in problem.results[node]:
            storage = problem.value_storage[value]
            if storage >= 0 and problem.creator[storage] >= 0:
                self._bound[value] = self._instance[storage]
        if not again:
            state.position += 1
        if created:
            state.price(node)
            self._changed(node)
        if not again:
            self._note_writes(node)
        if state.used_bytes > self._budget:
            self._make_room(0)

    def _note_writes(self, node: int) -> None:
        """What a node has overwritten for the first time is dearer from now on."""
        problem = self._problem
        for value in problem.operands[node]:
            storage = problem.value_storage[value]
            if storage >= 0 and problem.creator[storage] >= 0 and node in problem.writers[storage]:
                self._state.price(problem.creator[storage])
                self._state.settle(problem.creator[storage])

    def _hand_back(self) -> Task:
        locked = self._lock(self._problem.outputs)
        yield from self._provide(self._problem.outputs)
        self._unlock(locked)

    # -- making room

    def _make_room(self, need: int) -> None:
        state = self._state
        while state.used_bytes + need > self._budget and not self._gave_up:
            unit = self._policy.victim()
            if unit is None:
                return
            self._evicted += 1
            for storage in self._problem.created[unit]:
                if state.present[storage]:
                    self._drop(storage)

    def _drop(self, storage: int) -> None:
        self._state.take(storage)
        self._changed(self._problem.creator[storage])

    def _lock(self, values: Sequence[int]) -> tuple[int, ...]:
        """Keep the units of some values from being evicted."""
        problem = self._problem
        storages = (problem.value_storage[value] for value in values)
        locked = tuple({problem.creator[s]: None for s in storages if s >= 0 and problem.creator[s] >= 0})
        for unit in locked:
            self._state.locks[unit] += 1
        return locked

    def _unlock(self, units: Sequence[int]) -> None:
        """Let units be evicted again; what was made for another's sake goes once the node after it has run."""
        state = self._state
        for unit in units:
            state.locks[unit] -= 1
            if not state.locks[unit]:
                created = self._problem.created[unit]
                self._spare.extend(s for s in created if state.present[s] and not state.is_wanted(s))

    # -- what can no longer be recomputed

    def _release(self, position: int) -> None:
        """Drop what had its last use here, or was recomputed only for something else."""
        spare, self._spare = self._spare, []
        for storage in (*self._units.dying.get(position, ()), *spare, *self._lingering):
            if self._state.present[storage]:
                self._let_go(storage)

    def _let_go(self, storage: int) -> None:
        """Drop what had its last use, unless it cannot be recomputed and an evicted unit depends on it."""
        state, unit = self._state, self._problem.creator[storage]
        if unit in state.lost:
            made_from_it, missed = self._dependents(self._units.readers[storage])
            there = sum(state.bytes_there(other) for other in made_from_it if other in state.evictable)
            # Keeping it is better than keeping more for its sake.
            if missed or there > self._problem.storage_bytes[storage]:
                self._lingering[storage] = None
                return
            for other in made_from_it:
                state.lose(other)
        self._lingering.pop(storage, None)
        self._drop(storage)

    def _secure(self, units: Sequence[int]) -> Task:
        """Before some units can no longer be recomputed: recompute what the program misses of them and their dependents."""
        state = self._state
        dependents, missed = self._dependents(units)
        for unit in dependents:
            state.locks[unit] += 1
        for unit in missed:
            # Another may have brought it back.
            if state.is_missed(unit):
                yield self._remake(unit)
        # Not earlier: until all are there, one may be made from what is left of another.
        for unit in dependents:
            state.lose(unit)
        self._unlock(dependents)

    def _dependents(self, units: Sequence[int]) -> tuple[list[int], list[int]]:
        """Units that cannot be recomputed when these cannot; and those of them that the program misses now."""
        state, problem = self._state, self._problem
        found: dict[int, None] = {}
        missed = []
        waiting = list(units)
        while waiting:
            unit = waiting.pop()
            if unit in found or unit in state.lost or not state.has_run(unit):
                continue
            found[unit] = None
            if state.is_missed(unit):
                missed.append(unit)
            for storage in problem.created[unit]:
                if not state.present[storage] or not state.is_wanted(storage):
                    waiting.extend(self._units.readers[storage])
        return list(found), sorted(missed, key=self._units.position_of.__getitem__)
