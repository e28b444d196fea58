"""Candidates that are chosen one after another for one shape, with the bytes at every position under them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from neaptide.planner.offload.host import HostSpace
from neaptide.planner.points.candidates import Candidate
from neaptide.planner.points.script import Eviction, Script, ScriptWriter, Way
from neaptide.planner.points.shaped import ShapedProgram, ShapeSizes
from neaptide.symbolic.stacked import Ints

_IN_BULK = 32  # candidates chosen at a time when there are many

Floats: TypeAlias = NDArray[np.float64]
Score: TypeAlias = Callable[[Ints, Ints], Ints]
"""By candidate, what it is worth: from the bytes it frees of those that are too many, and at how many positions."""


@dataclass(frozen=True, slots=True)
class Situation:
    """What a decision is asked for.

    Attributes:
        shaped: the program.
        candidates: what may be evicted.
        sizes: of the shape.
        budget_bytes: highest peak with workspace, what the caller owns included.
        host: where evicted storages may wait; None: they must be recomputed.
        start: position before which the decision is taken.
        gone: what has been evicted by then and is not back.
        most_choices: of one candidate at a time in a search; then they are chosen in bulk, so that it ends.
        most_exchanges: evictions that are forbidden, one after another, to see whether others are better.
        to_beat: seconds of repetitions and copies from which on a script is of no use, nor is one above the budget:
            another program keeps to it; None where each is of use.
    """

    shaped: ShapedProgram
    candidates: Sequence[Candidate]
    sizes: ShapeSizes
    budget_bytes: int
    host: HostSpace | None = None
    start: int = 0
    gone: tuple[Eviction, ...] = ()
    most_choices: int = 256
    most_exchanges: int = 4
    to_beat: float | None = None


class Priced:
    """What the candidates of a situation free and cost; shared by its searches.

    Args:
        situation: what is asked for.

    Attributes:
        candidates: that may be evicted from the situation on, or are gone.
        gone: by candidate, what has been evicted by then.
        begin: by candidate, the position before which it is evicted.
        nbytes: by candidate, what it frees.
        ways: by candidate, how it comes back.
        cost: by candidate, seconds of that; infinite where there is no way, or nothing is left to decide.
        users: by unit, candidates that are recomputed from it.
        of_unit: by unit, its candidates.
        sources: by candidate, those that its recomputation reads.
        writer: of scripts.
    """

    def __init__(self, situation: Situation) -> None:
        sizes, start = situation.sizes, situation.start
        self.situation = situation
        self.writer = ScriptWriter(situation.shaped, sizes)
        self.gone = {e.candidate: e for e in situation.gone}
        self.candidates = [
            c for c in situation.candidates if c in self.gone or c.end > max(c.start + 1, start)
        ]
        self.begin = [
            self.gone[c].begin if c in self.gone else max(c.start + 1, start) for c in self.candidates
        ]
        self.nbytes = [sum(sizes.storage_bytes[s] for s in c.storages) for c in self.candidates]
        self.ways = [Way.RECOMPUTE] * len(self.candidates)
        self.cost = [float("inf")] * len(self.candidates)
        self.users: dict[int, list[int]] = defaultdict(list)
        self.of_unit: dict[int, list[int]] = defaultdict(list)
        for number, candidate in enumerate(self.candidates):
            self.of_unit[candidate.unit].append(number)
            self._price(number, candidate)
            if self.ways[number] is Way.RECOMPUTE:
                for source in candidate.sources:
                    self.users[source].append(number)
        self.sources = [
            [n for source in c.sources for n in self.of_unit.get(source, ())] if way is Way.RECOMPUTE else []
            for c, way in zip(self.candidates, self.ways, strict=True)
        ]

    def _price(self, number: int, candidate: Candidate) -> None:
        situation = self.situation
        seconds, host = situation.sizes.repeat_seconds, situation.host
        if candidate in self.gone:
            self.ways[number] = self.gone[candidate].way
            return
        if candidate.again:
            self.cost[number] = sum(seconds[node] for node in candidate.again)
        if host is not None and not host.stuck.intersection(candidate.storages):
            taken = sum(host.copy_seconds(situation.sizes.storage_bytes[s]) for s in candidate.storages)
            if taken < self.cost[number] and self.nbytes[number] <= host.nbytes:
                self.cost[number], self.ways[number] = taken, Way.RELOAD


class Search:
    """Chosen candidates, and the bytes at each position under them.

    Args:
        priced: what is asked for.
        extra: by position, bytes that recomputation was seen to take beyond those that are counted there.
        forbidden: candidates that are not evicted.
    """

    def __init__(
        self,
        priced: Priced,
        extra: Mapping[int, int],
        forbidden: Collection[Candidate] = (),
    ) -> None:
        self.situation = situation = priced.situation
        self.priced, self.shaped = priced, situation.shaped
        self.during: Ints = situation.sizes.during.copy()
        for position, nbytes in extra.items():
            self.during[position] += nbytes
        self.candidates, self.gone, self.nbytes = priced.candidates, priced.gone, priced.nbytes
        self.ways, self.users, self.sources = priced.ways, priced.users, priced.sources
        self.begin = list(priced.begin)
        self.back = [c.end for c in self.candidates]
        self.cost = list(priced.cost)
        for number, candidate in enumerate(self.candidates) if forbidden else ():
            if candidate in forbidden:
                self.cost[number] = float("inf")
        self.chosen: dict[int, None] = {}
        self.host_bytes = 0
        for number, candidate in enumerate(self.candidates) if self.gone else ():
            if candidate in self.gone:
                self.add(number)

    # -- changing

    def add(self, number: int) -> None:
        """Choose a candidate."""
        candidate = self.candidates[number]
        begin = self.begin[number]
        back = candidate.end
        for user in self.users[candidate.unit]:
            is_away = user in self.chosen and self.back[user] > self.begin[user]
            if is_away and begin <= self.back[user] < back:
                back = self.back[user]
        self.chosen[number] = None
        self.back[number] = back
        if self.ways[number] is Way.RELOAD:
            self.host_bytes += self.nbytes[number]
        self.during[begin:back] -= self.nbytes[number]
        self._demand(number)

    def _demand(self, number: int) -> None:
        """What is chosen and read by the recomputation of a candidate is back when that is."""
        waiting = [number]
        while waiting:
            user = waiting.pop()
            position = self.back[user]
            if position <= self.begin[user]:
                continue
            for other in self.sources[user]:
                if other in self.chosen and self.begin[other] <= position < self.back[other]:
                    self.during[position : self.back[other]] += self.nbytes[other]
                    self.back[other] = position
                    waiting.append(other)

    def put_back(self) -> None:
        """Give up what is not needed, dearest first, and whose bytes fit."""
        budget = self.situation.budget_bytes
        for number in sorted(self.chosen, key=lambda n: (-self.cost[n], n)):
            if self.candidates[number] in self.gone:
                continue
            begin, back, nbytes = self.begin[number], self.back[number], self.nbytes[number]
            if begin >= back or int(self.during[begin:back].max()) + nbytes <= budget:
                self.during[begin:back] += nbytes
                del self.chosen[number]

    def settle(self) -> None:
        """Work out anew when everything chosen is back."""
        chosen = list(self.chosen)
        for number in chosen:
            self.during[self.begin[number] : self.back[number]] += self.nbytes[number]
        self.chosen.clear()
        self.host_bytes = 0
        for number in sorted(chosen, key=lambda n: -self.candidates[n].end):
            self.add(number)

    # -- choosing

    def _fits_host(self, number: int) -> bool:
        host = self.situation.host
        if self.ways[number] is not Way.RELOAD or host is None:
            return True
        return self.host_bytes + self.nbytes[number] <= host.nbytes

    def cover(self, score: Score) -> None:
        """Until nothing is above the budget, or nothing helps."""
        budget, first = self.situation.budget_bytes, self.situation.start
        begins, ends = np.array(self.begin, dtype=np.intp), np.array([c.end for c in self.candidates])
        nbytes, cost = np.array(self.nbytes, dtype=np.int64), np.array(self.cost)
        free = np.isfinite(cost) & (nbytes > 0)
        free[list(self.chosen)] = False
        while free.any():
            over = self.during - budget
            over[:first] = 0
            most = int(over.max())
            if most <= 0:
                break
            steps = np.concatenate(([0], np.cumsum(over > 0)))
            hot = np.where(free, steps[ends] - steps[begins], 0)
            gain = score(np.minimum(nbytes, most), hot)
            scores = np.where(hot > 0, cost / np.maximum(gain, 1), np.inf)
            in_bulk = len(self.chosen) >= self.situation.most_choices
            picked = np.argsort(scores, kind="stable")[:_IN_BULK] if in_bulk else np.array([scores.argmin()])
            picked = picked[np.isfinite(scores[picked])]
            if not len(picked):
                break
            before = int(np.maximum(over, 0).sum())
            for number in picked.tolist():
                free[number] = False
                if self._fits_host(number):
                    before = self._try(number, before)
        self.put_back()
        self.settle()

    def _try(self, number: int, before: int) -> int:
        """Choose a candidate unless it only brings back what others free; bytes times positions that are too many."""
        during, back, host_bytes = self.during.copy(), list(self.back), self.host_bytes
        self.add(number)
        over = self.during[self.situation.start :] - self.situation.budget_bytes
        now = int(np.maximum(over, 0).sum())
        if now < before:
            return now
        del self.chosen[number]
        self.during, self.back, self.host_bytes = during, back, host_bytes
        return before

    def by_bytes(self) -> None:
        """Position by position, by seconds for each byte."""
        by_byte = self._seconds_by_byte()
        self._on_the_fly(lambda _position: by_byte)

    def by_staleness(self) -> None:
        """Position by position, by seconds for each byte and each second since the last use."""
        seconds, order = self.situation.sizes.repeat_seconds, self.shaped.units.order
        clock = np.concatenate(([0.0], np.cumsum([seconds[node] for node in order])))
        used, by_byte = clock[[c.start for c in self.candidates]], self._seconds_by_byte()

        def ranks(position: int) -> Floats:
            stale = clock[position] - used
            return np.where(stale > 0, by_byte / np.where(stale > 0, stale, 1.0), np.inf)

        self._on_the_fly(ranks)

    def _seconds_by_byte(self) -> Floats:
        return np.array(self.cost) / np.maximum(self.nbytes, 1)

    def _on_the_fly(self, ranks: Callable[[int], Floats]) -> None:
        budget, first = self.situation.budget_bytes, self.situation.start
        begins, ends = np.array(self.begin, dtype=np.intp), np.array([c.end for c in self.candidates])
        able = np.isfinite(self.cost) & (np.array(self.nbytes) > 0)
        able[list(self.chosen)] = False
        for position in range(first, len(self.during)):
            while self.during[position] > budget:
                idle = np.flatnonzero(able & (begins <= position) & (position < ends))
                idle = idle[np.array([self._fits_host(n) for n in idle.tolist()], dtype=bool)]
                if not len(idle):
                    break
                number = int(idle[ranks(position)[idle].argmin()])
                able[number] = False
                self.begin[number] = position
                self.add(number)

    # -- the answer

    def evictions(self) -> Iterable[Eviction]:
        for number in self.chosen:
            candidate = self.candidates[number]
            if self.back[number] > self.begin[number]:
                yield Eviction(candidate, self.ways[number], self.begin[number], self.back[number])

    def learn(self, script: Script, extra: dict[int, int]) -> bool:
        """Note where recomputation took more than the budget; whether that is news."""
        is_news = False
        for position, nbytes in script.at_points.items():
            if nbytes <= self.situation.budget_bytes:
                continue
            beyond = nbytes - int(self.during[position]) + extra.get(position, 0)
            if beyond > extra.get(position, 0):
                extra[position] = beyond
                is_news = True
        return is_news
