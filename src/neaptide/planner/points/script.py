"""What is done at the points of a program: evictions and ways back, and exactly how many bytes that takes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from neaptide.planner.points.candidates import Candidate
from neaptide.planner.points.shaped import ShapedProgram, ShapeSizes
from neaptide.symbolic.stacked import Ints


class Way(Enum):
    """How an evicted unit comes back."""

    RECOMPUTE = "recompute"
    RELOAD = "reload"


@dataclass(frozen=True, slots=True)
class Eviction:
    """A decision.

    Attributes:
        candidate: what is evicted.
        way: how it comes back.
        begin: position before which it is evicted.
        back: position before which it is there again: before its next use, or before another unit is recomputed from it.
    """

    candidate: Candidate
    way: Way
    begin: int
    back: int


class Kind(Enum):
    """What an action does."""

    DROP = "drop"
    STORE = "store"
    LOAD = "load"
    RUN = "run"


@dataclass(frozen=True, slots=True)
class Action:
    """One thing done at a point.

    Attributes:
        kind: what.
        target: a storage; of `RUN` a node, which runs again.
        takes: of `RUN`: the storages whose values are taken from what it returns. All others are left as they are.
    """

    kind: Kind
    target: int
    takes: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class Script:
    """All that is done beside the first executions.

    Attributes:
        evictions: the decisions, by begin and unit.
        actions: by position, in order; they are done before the node there runs.
        during: by position, bytes while the node there runs for the first time; behind them those at the end.
        at_points: by position, most bytes while the actions there are carried out.
        peak_bytes: of the run from where the script begins, with what the caller owns and with workspace.
        host_bytes: most bytes that wait on the host.
        repeated: nodes that run again, once for each time.
    """

    evictions: tuple[Eviction, ...]
    actions: Mapping[int, tuple[Action, ...]]
    during: Ints
    at_points: Mapping[int, int]
    peak_bytes: int
    host_bytes: int
    repeated: tuple[int, ...]

    def peak_before(self, position: int) -> int:
        """Most bytes of the run up to a point; 0 at the beginning."""
        points = (nbytes for point, nbytes in self.at_points.items() if point < position)
        return max(int(self.during[:position].max(initial=0)), *points, 0)

    def gone_at(self, position: int) -> tuple[Eviction, ...]:
        """What has been evicted before a point and is not back then."""
        return tuple(e for e in self.evictions if e.begin < position <= e.back)


def make_script(
    shaped: ShapedProgram, sizes: ShapeSizes, evictions: Iterable[Eviction], start: int = 0
) -> Script:
    """Write down what some decisions mean. O(positions + actions).

    Args:
        shaped: the program.
        sizes: of the shape.
        evictions: the decisions; those that begin before `start` have been carried out up to there.
        start: position from which on the script is needed.
    """
    decided = sorted(evictions, key=lambda e: (e.begin, e.candidate.unit))
    writer = _Writer(shaped, sizes)
    during = sizes.during.copy()
    host = [0] * (shaped.problem.node_count + 2)
    for eviction in decided:
        nbytes = sum(sizes.storage_bytes[s] for s in eviction.candidate.storages)
        during[max(eviction.begin, 0) : eviction.back] -= nbytes
        if eviction.way is Way.RELOAD:
            host[eviction.begin] += nbytes
            host[eviction.back] -= nbytes
        writer.leaving[eviction.begin].append(eviction)
        writer.returning[eviction.back].append(eviction)
    at_points: dict[int, int] = {}
    stored = most = 0
    for change in host:
        stored += change
        most = max(most, stored)
    for position in sorted(writer.leaving.keys() | writer.returning.keys()):
        at_points[position] = writer.point(position, is_past=position < start)
    peak = max(int(during[start:].max()), *at_points.values(), 0)
    actions = {position: tuple(found) for position, found in writer.actions.items() if found}
    return Script(tuple(decided), actions, during, at_points, peak, most, tuple(writer.repeated))


class _Writer:
    """Plays the points in order; keeps the bytes that are evicted."""

    def __init__(self, shaped: ShapedProgram, sizes: ShapeSizes) -> None:
        self.shaped, self.sizes = shaped, sizes
        self.leaving: dict[int, list[Eviction]] = defaultdict(list)
        self.returning: dict[int, list[Eviction]] = defaultdict(list)
        self.actions: dict[int, list[Action]] = {}
        self.repeated: list[int] = []
        self.away = 0

    def point(self, position: int, *, is_past: bool) -> int:
        """Most bytes at a point; 0 where it lies in the past and only the bytes count."""
        nbytes = self.sizes.storage_bytes
        actions: list[Action] = []
        for eviction in self.leaving.get(position, ()):
            self.away += sum(nbytes[s] for s in eviction.candidate.storages)
            kind = Kind.STORE if eviction.way is Way.RELOAD else Kind.DROP
            actions += [Action(kind, s) for s in eviction.candidate.storages]
        now = int(self.sizes.before[position]) - self.away
        returning = self.returning.get(position, ())
        for eviction in returning:
            self.away -= sum(nbytes[s] for s in eviction.candidate.storages)
            if eviction.way is Way.RELOAD:
                actions += [Action(Kind.LOAD, s) for s in eviction.candidate.storages]
                now += sum(nbytes[s] for s in eviction.candidate.storages)
        again = [e.candidate for e in returning if e.way is Way.RECOMPUTE]
        if is_past:
            return 0
        self.actions[position] = actions
        return max(now, self._recompute(again, position, now)) if again else now

    def _recompute(self, again: Sequence[Candidate], position: int, now: int) -> int:
        units, problem = self.shaped.units, self.shaped.problem
        nbytes, workspace = self.sizes.storage_bytes, self.sizes.workspace
        kept = {s for candidate in again for s in candidate.storages}
        nodes = {node for candidate in again for node in candidate.again}
        taken = {s for n in nodes for s in problem.created[n] if s in kept or units.last_use[s] < position}
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
        peak, found = now, frozenset(taken)
        for step, node in enumerate(order):
            self.actions[position].append(Action(Kind.RUN, node, found))
            peak = max(peak, now + sum(nbytes[s] for s in problem.created[node]) + workspace[node])
            now += sum(nbytes[s] for s in problem.created[node] if s in taken)
            for storage in sorted(ends.get(step, ())):
                self.actions[position].append(Action(Kind.DROP, storage))
                now -= nbytes[storage]
        self.repeated += order
        return peak
