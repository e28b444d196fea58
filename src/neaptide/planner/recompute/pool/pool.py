"""A pool of repetitions that a plan may choose from, and which storages are live when for each choice.

First executions keep their order. The repetitions that are chosen for a stage run in front of its first execution.
A storage is live from the node that makes it through the last chosen reader, until it is recomputed. Read backwards,
that is a chain of implications: a storage is live before a reader that runs; and where it is live after a repetition
of its maker that does not run, it is live before that too. So the bytes at every moment, also within repetitions, are
linear in two kinds of variables: the choices, and the stretches in which storages are live. These stretches are the
retention intervals of Bartan et al. 2023 (Moccasin), for a pool of choices in place of all of them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from neaptide.linear.arrays import Floats
from neaptide.planner.recompute.units import StageUnits
from neaptide.schedule.evaluate import Ints

Item: TypeAlias = tuple[int, int]
"""A stage and a unit that may run again in it."""
Moment: TypeAlias = tuple[int, int]
"""A stage and a unit that runs again in it, or `FIRST` for the first execution that ends the stage."""
FIRST: Final = 1 << 60
_NEVER: Final = 0
_ALWAYS: Final = -1


@dataclass(frozen=True, slots=True)
class Stretch:
    """A storage between two nodes that touch it: after the moment `start`, up to the moment `end`."""

    start: int
    end: int
    # Number of the variable that says whether it is live; -1 when it always is (`is_always`), or never.
    variable: int
    is_always: bool
    stage: int  # of the node that ends it; the number of stages less one for outputs


class RepetitionPool:
    """Choices and stretches of one pool, both as they follow each other.

    Attributes:
        item_moment: by item, index of its moment.
        first_moment: by stage, index of the moment of its first execution; one past the last for the end.
        stretches: by storage with a unit.
        always_bytes: by moment, bytes that are there whatever is chosen.
        item_bytes: by item, bytes that it adds at its own moment: what it makes and its scratch bytes.
        stretch_start, stretch_end, stretch_bytes: by variable of a stretch, its first and last moment, and its storage.
        implications: (sign and variable, ...) of rows whose sum is at most their right side.
    """

    def __init__(self, units: StageUnits, items: Collection[Item]) -> None:
        """O(size of the problem + items x operands)."""
        step = units.step
        self.units = units
        self.items: list[Item] = sorted(items)
        self.moments: list[Moment] = sorted([*self.items, *((p, FIRST) for p in range(len(units.order)))])
        place = {moment: index for index, moment in enumerate(self.moments)}
        self.item_moment: Ints = np.array([place[item] for item in self.items], dtype=np.int64)
        self.first_moment = [place[p, FIRST] for p in range(len(units.order))]
        self.first_moment.append(len(self.moments))
        self.stretches: dict[int, list[Stretch]] = {}
        chosen = [units.units[u] for _, u in self.items]
        self.seconds: Floats = np.array([unit.seconds for unit in chosen], dtype=np.float64)
        self.item_bytes: Floats = np.array(
            [unit.workspace + sum(step.storage_bytes[s] for s in unit.storages) for unit in chosen],
            dtype=np.float64,
        )
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._sizes: list[int] = []
        self.implications: list[tuple[tuple[tuple[float, int], ...], float]] = []
        change = np.zeros(len(self.moments) + 1)
        events = self._events()
        for storage, unit in enumerate(units.unit_of):
            if unit >= 0:
                self._live(storage, units.units[unit].position, events[storage], change)
        self.always_bytes: Floats = np.cumsum(change)[:-1] + step.persistent_bytes
        for position, node in enumerate(units.order):
            own = step.workspace[node] + sum(step.storage_bytes[s] for s in step.created[node])
            self.always_bytes[self.first_moment[position]] += own
        self.stretch_start: Ints = np.array(self._starts, dtype=np.int64)
        self.stretch_end: Ints = np.array(self._ends, dtype=np.int64)
        self.stretch_bytes: Floats = np.array(self._sizes, dtype=np.float64)

    @property
    def variables(self) -> int:
        """Items, then stretches that depend on them."""
        return len(self.items) + len(self._starts)

    def profile(self, values: Floats) -> Floats:
        """Bytes by moment, for shares of items and stretches. O(moments + variables)."""
        count = len(self.items)
        change = np.zeros(len(self.moments) + 1)
        live = self.stretch_bytes * values[count : self.variables]
        np.add.at(change, self.stretch_start, live)
        np.add.at(change, self.stretch_end + 1, -live)
        profile: Floats = self.always_bytes + np.cumsum(change)[:-1]
        profile[self.item_moment] += self.item_bytes * values[:count]
        return profile

    def number_of(self, item: Item) -> int:
        """Index of an item; -1 when it is not in the pool."""
        index = bisect_left(self.items, item)
        return index if index < len(self.items) and self.items[index] == item else -1

    def _events(self) -> list[list[tuple[int, int, bool]]]:
        """By storage, (moment, item or -1 for a first execution, whether it makes it) of all that touch it."""
        units = self.units
        events: list[list[tuple[int, int, bool]]] = [[] for _ in units.unit_of]
        for position, storages in enumerate(units.reads):
            for storage in storages:
                events[storage].append((self.first_moment[position], -1, False))
        for number, (_, index) in enumerate(self.items):
            moment = int(self.item_moment[number])
            for storage in units.units[index].storages:
                events[storage].append((moment, number, True))
            for storage in units.units[index].reads:
                events[storage].append((moment, number, False))
        return events

    def _live(self, storage: int, position: int, events: list[tuple[int, int, bool]], change: Floats) -> None:
        """Walk a storage backwards: what of it is live always, never, or by a variable."""
        size = self.units.step.storage_bytes[storage]
        born = self.first_moment[position]
        touched = sorted(event for event in events if event[0] > born)
        is_output = self.units.is_output[storage]
        end, stage = len(self.moments) - 1, len(self.units.order)
        live = _ALWAYS if is_output else _NEVER
        found: list[Stretch] = []
        for moment, item, makes in reversed(touched):
            found.append(self._stretch(moment, end, live, stage))
            before = self._before(live, item, makes=makes)
            if before > 0:
                self._starts.append(0)  # known when the node before it is
                self._ends.append(moment)
                self._sizes.append(size)
            live, end, stage = before, moment, self.moments[moment][0]
        found.append(self._stretch(born, end, live, stage))
        count = len(self.items)
        for stretch in found:
            if stretch.variable >= 0:
                self._starts[stretch.variable - count] = stretch.start + 1
            elif stretch.is_always and stretch.end > stretch.start:
                change[stretch.start + 1] += size
                change[stretch.end + 1] -= size
        self.stretches[storage] = found[::-1]

    def _stretch(self, start: int, end: int, live: int, stage: int) -> Stretch:
        return Stretch(start, end, live - 1 if live > 0 else -1, live == _ALWAYS, stage)

    def _before(self, behind: int, item: int, *, makes: bool) -> int:
        """Whether a storage is live before a node that touches it: never, always, or one more than a variable."""
        if not makes and (item < 0 or behind == _ALWAYS):
            return _ALWAYS
        if makes and behind == _NEVER:
            return _NEVER
        variable = self.variables
        if not makes:
            self.implications.append((((1.0, item), (-1.0, variable)), 0.0))
            if behind != _NEVER:
                self.implications.append((((1.0, behind - 1), (-1.0, variable)), 0.0))
        elif behind == _ALWAYS:
            self.implications.append((((-1.0, item), (-1.0, variable)), -1.0))
        else:
            self.implications.append((((1.0, behind - 1), (-1.0, item), (-1.0, variable)), 0.0))
        return variable + 1
