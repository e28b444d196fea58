"""Which storages of a program hold bytes while it runs under an eviction policy."""

from __future__ import annotations

from neaptide_peers.eviction.units import RunUnits


class RunState:
    """Where a run stands: how far it is, what holds bytes, and what each unit costs.

    Attributes:
        units: of the program.
        position: first executions that have happened.
        clock: seconds of all executions so far.
        used_bytes: of all storages that hold bytes, those of the caller included.
        present: by storage, whether it holds bytes.
        cost: by unit, seconds to recompute it when all its operands hold bytes.
        last_access: by unit, the clock when it was last computed or read.
        locks: by unit, how many executions in preparation need it.
        lost: units that can no longer be recomputed.
        evictable: units that hold bytes and may be evicted when they are not locked.
    """

    def __init__(self, units: RunUnits) -> None:
        problem = units.problem
        count = problem.node_count
        self.units = units
        self.position = 0
        self.clock = 0.0
        self.used_bytes = problem.persistent_bytes
        self.present = [False] * len(problem.storage_bytes)
        self.cost = [0.0] * count
        self.last_access = [0.0] * count
        self.locks = [0] * count
        self.lost = set(units.refused)
        self.evictable: dict[int, None] = {}

    def has_run(self, node: int) -> bool:
        """Whether a node has run for the first time."""
        return self.units.position_of[node] < self.position

    def is_wanted(self, storage: int) -> bool:
        """Whether the program itself still reads a storage, or it is an output."""
        return self.units.last_use[storage] >= self.position

    def is_kept(self, unit: int) -> bool:
        """Whether a unit must stay from here on, see `Units.kept_from`."""
        begin = self.units.kept_from.get(unit, -1)
        return begin >= 0 and self.units.position_of[begin] <= self.position

    def is_missed(self, unit: int) -> bool:
        """Whether an evicted storage of a unit is still needed by the program itself."""
        return any(
            not self.present[s] and self.is_wanted(s) for s in self.units.problem.created[unit]
        ) and self.has_run(unit)

    def is_whole(self, unit: int) -> bool:
        """Whether all that a node creates is there."""
        return all(self.present[s] for s in self.units.problem.created[unit])

    def holds_wanted(self, unit: int) -> bool:
        """Whether something is there that the program still needs."""
        return any(self.present[s] and self.is_wanted(s) for s in self.units.problem.created[unit])

    def bytes_there(self, unit: int) -> int:
        """Bytes that an eviction of a unit frees."""
        nbytes = self.units.problem.storage_bytes
        return sum(nbytes[s] for s in self.units.problem.created[unit] if self.present[s])

    def put(self, storage: int) -> None:
        """A storage has been made."""
        unit = self.units.problem.creator[storage]
        self.present[storage] = True
        self.used_bytes += self.units.problem.storage_bytes[storage]
        if unit not in self.lost and not self.is_kept(unit):
            self.evictable[unit] = None

    def take(self, storage: int) -> None:
        """A storage no longer holds bytes."""
        unit = self.units.problem.creator[storage]
        self.present[storage] = False
        self.used_bytes -= self.units.problem.storage_bytes[storage]
        if not any(self.present[s] for s in self.units.problem.created[unit]):
            self.evictable.pop(unit, None)

    def lose(self, unit: int) -> None:
        """A unit can no longer be recomputed: what holds bytes of it stays until its last use."""
        self.lost.add(unit)
        self.evictable.pop(unit, None)

    def note_run(self, node: int, seconds: float) -> None:
        """A node has run once more; the units that it reads and makes have been accessed."""
        problem = self.units.problem
        self.clock += seconds
        for value in problem.operands[node]:
            storage = problem.value_storage[value]
            if storage >= 0 and (unit := problem.creator[storage]) >= 0:
                self.last_access[unit] = self.clock
        if problem.created[node]:
            self.last_access[node] = self.clock

    def settle(self, unit: int) -> None:
        """Take a unit off those that may be evicted, if a writer that has just run makes it one to keep."""
        if self.is_kept(unit):
            self.evictable.pop(unit, None)

    def price(self, unit: int) -> None:
        """Add up the cost of a unit anew: a writer of it has run."""
        chain = self.units.chains[unit]
        seconds = self.units.problem.repeat_seconds
        self.cost[unit] = sum(seconds[n] for n in chain if n == unit or self.has_run(n))
