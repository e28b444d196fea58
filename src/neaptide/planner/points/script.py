"""What is done at the points of a program: evictions and ways back, and exactly how many bytes that takes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

import numpy as np

from neaptide.planner.points.choices.candidates import Candidate
from neaptide.planner.points.shaped import ShapedProgram, ShapeSizes
from neaptide.symbolic.stacked import Ints


class Way(Enum):
    """How an evicted unit comes back."""

    RECOMPUTE = "recompute"
    RELOAD = "reload"


@dataclass(frozen=True, slots=True)
class Eviction:
    """A decision."""

    candidate: Candidate
    way: Way
    begin: int  # position before which it is evicted
    back: int  # position before which it is there again, for its next use or for another unit
    meanwhile: tuple[int, ...] = ()  # before which it is recomputed for another unit alone


class Kind(Enum):
    """What an action does."""

    DROP = "drop"
    STORE = "store"
    LOAD = "load"
    RUN = "run"


@dataclass(frozen=True, slots=True)
class Action:
    """One thing done at a point."""

    kind: Kind
    target: int  # a storage; of `RUN` a node, which runs again
    takes: frozenset[int] = frozenset()  # of `RUN`: storages whose values are taken from what it returns


@dataclass(frozen=True, slots=True, eq=False)
class Script:
    """All that is done beside the first executions."""

    evictions: tuple[Eviction, ...]  # the decisions, by begin and unit
    actions: Mapping[int, tuple[Action, ...]]  # by position, before the node there runs
    during: Ints  # by position, bytes in first executions; last those at the end
    at_points: Mapping[int, int]  # by position, most bytes while the actions there are carried out
    peak_bytes: int  # of the run from where the script begins, with what the caller owns and with workspace
    host_bytes: int  # most bytes that wait on the host
    repeated: tuple[int, ...]  # nodes that run again, once for each time

    def peak_before(self, position: int) -> int:
        """Most bytes of the run up to a point; 0 at the beginning."""
        points = (nbytes for point, nbytes in self.at_points.items() if point < position)
        return max(int(self.during[:position].max(initial=0)), *points, 0)

    def gone_at(self, position: int) -> tuple[Eviction, ...]:
        """What has been evicted before a point and is not back then."""
        return tuple(e for e in self.evictions if e.begin < position <= e.back)


@dataclass(frozen=True, slots=True)
class Recomputed:
    """What it takes to recompute some units at a point."""

    actions: tuple[Action, ...]
    nodes: tuple[int, ...]
    most_bytes: int  # beyond what is there before, at any moment


class ScriptWriter:
    """Writes scripts of one shape; what is recomputed together at a point is worked out once for all of them."""

    def __init__(self, shaped: ShapedProgram, sizes: ShapeSizes) -> None:
        self.shaped, self.sizes = shaped, sizes
        self._known: dict[tuple[int, frozenset[Candidate], frozenset[Candidate]], Recomputed] = {}

    def script(self, evictions: Iterable[Eviction], start: int = 0) -> Script:
        """What some decisions mean from a position on, up to which they have been carried out. O(positions + actions)."""
        decided = sorted(evictions, key=lambda e: (e.begin, e.candidate.unit))
        change = np.zeros(len(self.sizes.during) + 1, dtype=np.int64)
        leaving: dict[int, list[tuple[Eviction, int]]] = defaultdict(list)
        returning: dict[int, list[tuple[Eviction, int]]] = defaultdict(list)
        meanwhile: dict[int, list[Candidate]] = defaultdict(list)
        for eviction in decided:
            for position in eviction.meanwhile:
                meanwhile[position].append(eviction.candidate)
            nbytes = sum(self.sizes.storage_bytes[s] for s in eviction.candidate.storages)
            if eviction.back > eviction.begin:
                change[eviction.begin] -= nbytes
                change[eviction.back] += nbytes
            leaving[eviction.begin].append((eviction, nbytes))
            returning[eviction.back].append((eviction, nbytes))
        during = self.sizes.during + np.cumsum(change[:-1])
        at_points: dict[int, int] = {}
        actions: dict[int, tuple[Action, ...]] = {}
        repeated: list[int] = []
        away = stored = most_stored = 0
        for position in sorted(leaving.keys() | returning.keys() | meanwhile.keys()):
            found: list[Action] = []
            for eviction, nbytes in leaving.get(position, ()):
                away += nbytes
                is_stored = eviction.way is Way.RELOAD
                stored += nbytes if is_stored else 0
                kind = Kind.STORE if is_stored else Kind.DROP
                found += [Action(kind, s) for s in eviction.candidate.storages]
            now = int(self.sizes.before[position]) - away
            again = []
            for eviction, nbytes in returning.get(position, ()):
                away -= nbytes
                if eviction.way is Way.RELOAD:
                    found += [Action(Kind.LOAD, s) for s in eviction.candidate.storages]
                    now += nbytes
                    stored -= nbytes
                else:
                    again.append(eviction.candidate)
            most_stored = max(most_stored, stored)
            if position < start:
                at_points[position] = 0  # it lies in the past, and only the bytes count
                continue
            if again:
                recomputed = self._recomputed(
                    position, frozenset(again), frozenset(meanwhile.get(position, ()))
                )
                found += recomputed.actions
                repeated += recomputed.nodes
                now += recomputed.most_bytes
            at_points[position] = now
            if found:
                actions[position] = tuple(found)
        peak = max(int(during[start:].max()), *at_points.values(), 0)
        return Script(tuple(decided), actions, during, at_points, peak, most_stored, tuple(repeated))

    def heaviest(self, script: Script, budget_bytes: int) -> Candidate | None:
        """What takes most bytes to be recomputed, of all that is at the highest point above a budget; None where no
        recomputation is above it.
        """
        position = max(script.at_points, key=script.at_points.__getitem__, default=-1)
        if script.at_points.get(position, 0) <= budget_bytes:
            return None
        there = [e.candidate for e in script.evictions if e.back == position and e.way is Way.RECOMPUTE]
        there += [e.candidate for e in script.evictions if position in e.meanwhile]
        weights = [self._recomputed(position, frozenset((c,)), frozenset()).most_bytes for c in there]
        return there[weights.index(max(weights))] if there else None

    def _recomputed(
        self, position: int, again: frozenset[Candidate], meanwhile: frozenset[Candidate]
    ) -> Recomputed:
        key = position, again, meanwhile
        if key not in self._known:
            self._known[key] = self._work_out(position, again, meanwhile)
        return self._known[key]

    def _work_out(
        self, position: int, again: frozenset[Candidate], meanwhile: frozenset[Candidate]
    ) -> Recomputed:
        """Recompute some units, and others that they are made from; these are dropped as soon as may be."""
        units, problem = self.shaped.units, self.shaped.problem
        nbytes, workspace = self.sizes.storage_bytes, self.sizes.workspace
        kept = {s for candidate in again for s in candidate.storages}
        away = kept.union(s for candidate in meanwhile for s in candidate.storages)
        nodes = {node for candidate in again | meanwhile for node in candidate.again}
        taken = {s for n in nodes for s in problem.created[n] if s in away or units.last_use[s] < position}
        for storage in taken:
            nodes.update(n for n in problem.views[storage] if units.position_of[n] < position)
        order = sorted(nodes, key=units.position_of.__getitem__)
        last: dict[int, int] = {}
        for step, node in enumerate(order):
            for storage in problem.created[node]:
                last[storage] = step
            for value in problem.operands[node]:
                last[problem.value_storage[value]] = step
        ends: dict[int, list[int]] = defaultdict(list)
        for storage in taken - kept:
            ends[last[storage]].append(storage)
        now = most = 0
        actions, found = [], frozenset(taken)
        for step, node in enumerate(order):
            actions.append(Action(Kind.RUN, node, found))
            made = problem.created[node]
            most = max(most, now + sum(nbytes[s] for s in made) + workspace[node])
            now += sum(nbytes[s] for s in made if s in taken)
            for storage in sorted(ends.get(step, ())):
                actions.append(Action(Kind.DROP, storage))
                now -= nbytes[storage]
        return Recomputed(tuple(actions), tuple(order), most)
