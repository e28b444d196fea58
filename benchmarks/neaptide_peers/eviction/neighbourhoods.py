"""What else has to run when something evicted is needed again: the evicted neighbourhood, exactly or nearly.

Kirisame et al. (ICLR 2021), section 4.1: what is evicted makes its evicted descendants dearer, and needs its evicted
ancestors. What is gone because the program needs it no longer counts only where something evicted is made from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from neaptide_peers.eviction.run_state import RunState
from neaptide_peers.eviction.settings import SETTINGS


class Neighbourhoods(Protocol):
    """Seconds of the evicted neighbourhood of units that are there."""

    def seconds(self, unit: int) -> float:
        """What has to run beside the unit's own chain, in seconds."""
        ...

    def changed(self, unit: int) -> None:
        """A unit, in part at least, has come or gone, or is wanted no longer."""
        ...


class NoNeighbourhoods:
    """A unit alone counts."""

    def seconds(self, _unit: int) -> float:
        """Nothing."""
        return 0.0

    def changed(self, unit: int) -> None:
        """Nothing to remember."""


class ExactNeighbourhoods:
    """The neighbourhood e* of the paper, walked anew where something in it has changed.

    A walk is O(size of the neighbourhood); a change drops what was remembered of the units that reach it.

    Args:
        state: of the run.
        with_descendants: count evicted descendants; without them it is the recomputation cost of Capuchin (Peng et
            al., ASPLOS 2020).
    """

    def __init__(self, state: RunState, *, with_descendants: bool = True) -> None:
        self._state = state
        self._with_descendants = with_descendants
        self._known: dict[int, float] = {}
        self._changes = 0

    def seconds(self, unit: int) -> float:
        """Of all evicted units that are made from it and of those that it is made from."""
        self._changes = 0
        found = self._known.get(unit)
        if found is None:
            members = self._above(unit)
            if self._with_descendants:
                members |= self._below(unit)
            found = self._known[unit] = sum(self._state.cost[member] for member in sorted(members))
        return found

    def changed(self, unit: int) -> None:
        """Forget the neighbourhoods that the unit is in."""
        self._changes += 1
        if self._changes > SETTINGS.most_changes:
            # Nobody asks at present: forgetting all is cheaper than walking at each change.
            self._known.clear()
        self._known.pop(unit, None)
        if not self._known:
            return
        self._forget(unit, self._made_from_it)
        if self._with_descendants:
            self._forget(unit, self._it_is_made_from)

    def _above(self, unit: int) -> set[int]:
        state, creator = self._state, self._state.units.problem.creator
        found: set[int] = set()
        waiting = [unit]
        while waiting:
            for source in state.units.sources[waiting.pop()]:
                if not state.present[source] and creator[source] not in found:
                    found.add(creator[source])
                    waiting.append(creator[source])
        return found

    def _below(self, unit: int) -> set[int]:
        """Evicted units made from it that are wanted, or that others are made from which are."""
        state = self._state
        reached: set[int] = set()
        waiting = [unit]
        while waiting:
            for reader in self._made_from_it(waiting.pop()):
                if reader not in reached and state.has_run(reader) and not state.is_whole(reader):
                    reached.add(reader)
                    waiting.append(reader)
        kept: set[int] = set()
        for member in sorted(reached, key=state.units.position_of.__getitem__, reverse=True):
            if state.is_missed(member) or any(reader in kept for reader in self._made_from_it(member)):
                kept.add(member)
        return kept

    def _made_from_it(self, unit: int) -> Iterable[int]:
        units = self._state.units
        return (reader for s in units.problem.created[unit] for reader in units.readers[s])

    def _it_is_made_from(self, unit: int) -> Iterable[int]:
        units = self._state.units
        return (units.problem.creator[s] for s in units.sources[unit])

    def _forget(self, unit: int, following: Callable[[int], Iterable[int]]) -> None:
        seen = {unit}
        waiting = [unit]
        while waiting:
            for other in following(waiting.pop()):
                if other not in seen:
                    seen.add(other)
                    self._known.pop(other, None)
                    if not self._state.is_whole(other):
                        waiting.append(other)


class ClassNeighbourhoods:
    """The estimate of the paper: evicted units that touch are one class with a running sum (union-find).

    A unit that is recomputed leaves its class, which is not split. Nearly constant time for each change.
    """

    def __init__(self, state: RunState) -> None:
        self._state = state
        self._parent: list[int] = []
        self._sum: list[float] = []
        self._element: dict[int, int] = {}
        self._share: dict[int, float] = {}

    def seconds(self, unit: int) -> float:
        """Of the classes that the unit touches."""
        return sum(self._sum[root] for root in sorted({self._root(e) for e in self._touched(unit)}))

    def changed(self, unit: int) -> None:
        """Let the unit join the classes that it touches, or leave its own."""
        if unit in self._element:
            if self._state.is_whole(unit):
                self._leave(unit)
        elif self._state.is_missed(unit) or (
            not self._state.is_whole(unit) and any(r in self._element for r in self._readers(unit))
        ):
            self._join(unit)

    def _join(self, first: int) -> None:
        """Join, together with what is gone and would have to be made before it."""
        state = self._state
        creator = state.units.problem.creator
        waiting = [first]
        while waiting:
            unit = waiting.pop()
            if unit in self._element:
                continue
            self._element[unit] = len(self._parent)
            self._parent.append(len(self._parent))
            self._sum.append(state.cost[unit])
            self._share[unit] = state.cost[unit]
            for element in self._touched(unit):
                self._unite(self._element[unit], element)
            waiting.extend(creator[s] for s in state.units.sources[unit] if not state.present[s])

    def _leave(self, first: int) -> None:
        """Leave, together with what was there only because it would have had to be made before it."""
        state = self._state
        creator = state.units.problem.creator
        waiting = [first]
        while waiting:
            unit = waiting.pop()
            self._sum[self._root(self._element.pop(unit))] -= self._share.pop(unit)
            for source in state.units.sources[unit]:
                other = creator[source]
                is_left = not state.is_missed(other) and not any(
                    r in self._element for r in self._readers(other)
                )
                if other in self._element and is_left and other not in waiting:
                    waiting.append(other)

    def _touched(self, unit: int) -> Iterable[int]:
        creator = self._state.units.problem.creator
        above = (creator[s] for s in self._state.units.sources[unit])
        near = dict.fromkeys((*above, *self._readers(unit)))
        return [self._element[other] for other in near if other in self._element]

    def _readers(self, unit: int) -> Iterable[int]:
        units = self._state.units
        return (reader for s in units.problem.created[unit] for reader in units.readers[s])

    def _unite(self, one: int, other: int) -> None:
        one, other = self._root(one), self._root(other)
        if one != other:
            self._parent[other] = one
            self._sum[one] += self._sum[other]

    def _root(self, element: int) -> int:
        parent = self._parent
        while parent[element] != element:
            parent[element] = parent[parent[element]]
            element = parent[element]
        return element
