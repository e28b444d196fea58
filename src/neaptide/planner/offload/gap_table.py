"""The gaps of a sequence that changes a little at a time."""

from __future__ import annotations

from operator import is_

from neaptide.planner.offload.gaps import IdleGap, UsePair, pair_gaps, use_pairs
from neaptide.planner.offload.host import HostSpace
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.transfers import TO_END


class GapTable:
    """Gaps that may be filled, of a sequence that repetitions are added to and taken from.

    An execution keeps its rank among those that touch a storage as long as none of these comes or goes, so what touches a
    storage is found once; positions are read anew.

    Attributes:
        evaluator: of the sequence.
        host: what may leave the device.
        movable: storages that may wait on the host where they are idle.
    """

    def __init__(self, evaluator: Evaluator, host: HostSpace) -> None:
        self.evaluator, self.host = evaluator, host
        self.movable = host.movable(evaluator.problem)
        self._is_movable = frozenset(self.movable)
        self._known: dict[int, tuple[list[list[int]], list[UsePair]]] = {}

    def of(self, storage: int) -> list[IdleGap]:
        """Gaps of a storage that may be filled. O(nodes that touch it), where their executions are the same as before."""
        if storage not in self._is_movable:
            return []
        evaluator = self.evaluator
        # These lists are replaced, never changed.
        executions = [evaluator.executions[node] for node in evaluator.problem.roles[storage]]
        known = self._known.get(storage)
        if known is None or not all(map(is_, executions, known[0])):
            known = self._known[storage] = executions, use_pairs(evaluator, storage)
        pairs = known[1]
        return self.host.allowed(evaluator, pair_gaps(evaluator, storage, pairs)) if pairs else []

    def across(self, first: int, last: int) -> list[IdleGap]:
        """Gaps of storages that are alive at one of some positions, as they begin. O(storages + gaps x log gaps)."""
        evaluator = self.evaluator
        places, spans = evaluator.places, evaluator.spans
        found: list[IdleGap] = []
        for storage in self.movable:
            if evaluator.problem.state_bytes[storage]:
                found += self.of(storage)
            for start, end in spans[storage]:
                if places[start] < last and (end == TO_END or places[end] > first):
                    found += self.of(storage)
                    break
        return sorted(found, key=IdleGap.as_they_begin)
