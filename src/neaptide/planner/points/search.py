"""Candidates that are chosen one after another for one shape, with the bytes at every position under them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from neaptide.planner.points.choices.candidates import Candidate
from neaptide.planner.points.choices.situation import Priced
from neaptide.planner.points.script import Eviction, Script, Way
from neaptide.symbolic.stacked import Ints


@dataclass(frozen=True, slots=True)
class Kept:
    """A state of a search that it can go back to."""

    during: Ints
    back: list[int]
    host_bytes: int
    chosen: dict[int, None]
    until: dict[int, int]
    meanwhile: dict[int, set[int]]


class Search:
    """Chosen candidates, and the bytes at each position under them.

    A candidate that another one is recomputed from comes back with it and stays, or is dropped again: up to a position it is
    recomputed for each other one anew.

    Attributes:
        during: by position, bytes while the node there runs, with what recomputation was seen to take beyond that.
        begin: by candidate, the position before which it is evicted.
        back: by candidate, the position before which it is there again.
        cost: by candidate, seconds to recompute or reload it once.
        chosen: candidates that are evicted.
        until: by chosen candidate that is dropped again, the position from which on it stays where it comes back.
        meanwhile: by these, positions before which they are recomputed for others.
    """

    def __init__(self, priced: Priced) -> None:
        self.situation = situation = priced.situation
        self.priced, self.shaped = priced, situation.shaped
        self.during: Ints = situation.sizes.during.copy()
        self.candidates, self.gone, self.nbytes = priced.candidates, priced.gone, priced.nbytes
        self.ways, self.users, self.sources = priced.ways, priced.users, priced.sources
        self.begin = list(priced.begin)
        self.back = [c.end for c in self.candidates]
        self.cost = list(priced.cost)
        self.chosen: dict[int, None] = {}
        self.until: dict[int, int] = {}
        self.meanwhile: dict[int, set[int]] = {}
        self.host_bytes = 0
        for number, candidate in enumerate(self.candidates) if self.gone else ():
            if candidate in self.gone:
                self.add(number)

    def copy(self) -> Search:
        """Another search that stands where this one does."""
        other = Search(self.priced)
        other.go_back(self.keep())
        other.begin, other.cost = list(self.begin), list(self.cost)
        return other

    def afresh_without(self, candidate: Candidate) -> Search:
        """Another search that begins with nothing, and does not evict a candidate, nor what this one does not."""
        other = Search(self.priced)
        other.cost = list(self.cost)
        other.forbid(candidate)
        return other

    # -- changing

    def add(self, number: int) -> None:
        """Choose a candidate."""
        candidate, begin = self.candidates[number], self.begin[number]
        wanted: list[int] = []
        for user in self.users[candidate.unit]:
            if user in self.chosen and self.back[user] > self.begin[user]:
                wanted += [
                    position
                    for position in (self.back[user], *self.meanwhile.get(user, ()))
                    if begin <= position < candidate.end
                ]
        self.chosen[number] = None
        if self.ways[number] is Way.RELOAD:
            self.host_bytes += self.nbytes[number]
        until = self.until.get(number, 0)
        back = min((position for position in wanted if position >= until), default=candidate.end)
        between = {position for position in wanted if position < min(until, back)}
        if until:
            self.meanwhile[number] = between
        self.back[number] = back
        self.during[begin:back] -= self.nbytes[number]
        self._demand(number, [back, *between])

    def drop_again(self, number: int) -> None:
        """Let a chosen candidate be away until its own next use, and be recomputed for others meanwhile."""
        self._remove(number)
        self.until[number] = self.candidates[number].end
        self.add(number)

    def forbid(self, candidate: Candidate) -> None:
        """Do not evict a candidate from now on."""
        number = self.candidates.index(candidate)
        self.cost[number] = float("inf")
        if number in self.chosen:
            self._remove(number)
            self.settle()

    def _remove(self, number: int) -> None:
        self.during[self.begin[number] : self.back[number]] += self.nbytes[number]
        del self.chosen[number]
        self.until.pop(number, None)
        self.meanwhile.pop(number, None)
        if self.ways[number] is Way.RELOAD:
            self.host_bytes -= self.nbytes[number]

    def _demand(self, number: int, positions: Iterable[int]) -> None:
        """What is chosen and read by the recomputation of a candidate is back when that is."""
        waiting = [(number, position) for position in positions]
        while waiting:
            user, position = waiting.pop()
            if position <= self.begin[user]:
                continue
            for other in self.sources[user]:
                if other in self.chosen and self.begin[other] <= position < self.back[other]:
                    if position >= self.until.get(other, 0):
                        self.during[position : self.back[other]] += self.nbytes[other]
                        self.back[other] = position
                        waiting.append((other, position))
                    elif position not in self.meanwhile[other]:
                        self.meanwhile[other].add(position)
                        waiting.append((other, position))

    def put_back(self) -> None:
        """Give up what is not needed, dearest first, and whose bytes fit."""
        budget = self.situation.budget_bytes
        for number in self.dearest(self.chosen):
            if self.candidates[number] in self.gone:
                continue
            begin, back, nbytes = self.begin[number], self.back[number], self.nbytes[number]
            if begin >= back or int(self.during[begin:back].max()) + nbytes <= budget:
                self._remove(number)

    def dearest(self, numbers: Iterable[int]) -> list[int]:
        """Chosen candidates by what they cost with all that is recomputed of them, the dearest first."""
        return sorted(numbers, key=lambda n: (-self.cost[n] * (1 + len(self.meanwhile.get(n, ()))), n))

    def stay_sooner(self, script: Script) -> bool:
        """Of candidates that are dropped again, let those stay that come back where there is room for them up to their use.

        Returns:
            Whether any stays sooner.
        """
        taken, is_any = script.during.copy(), False
        for position, nbytes in script.at_points.items():
            taken[position] = max(int(taken[position]), nbytes)
        for number in self.dearest(self.until):
            begin, back, nbytes = self.begin[number], self.back[number], self.nbytes[number]
            full = np.flatnonzero(taken[begin:back] + nbytes > self.situation.budget_bytes)
            room = begin + int(full[-1]) + 1 if len(full) else begin
            if sooner := [position for position in self.meanwhile[number] if room <= position < back]:
                self.until[number] = self.back[number] = first = min(sooner)
                taken[first:back] += nbytes
                self.during[first:back] += nbytes
                is_any = True
        self.settle()
        return is_any

    def settle(self) -> None:
        """Work out anew when everything chosen is back."""
        chosen, until = list(self.chosen), dict(self.until)
        self.priced.work += len(chosen) // 4
        for number in chosen:
            self._remove(number)
        self.until = until
        for number in sorted(chosen, key=lambda n: -self.candidates[n].end):
            self.add(number)

    def keep(self) -> Kept:
        """The state now."""
        meanwhile = {number: set(positions) for number, positions in self.meanwhile.items()}
        chosen, until = dict(self.chosen), dict(self.until)
        return Kept(self.during.copy(), list(self.back), self.host_bytes, chosen, until, meanwhile)

    def go_back(self, kept: Kept) -> None:
        """The state as it was."""
        self.during, self.back, self.host_bytes = kept.during, kept.back, kept.host_bytes
        self.chosen, self.until, self.meanwhile = kept.chosen, kept.until, kept.meanwhile

    # -- asking

    @property
    def early(self) -> set[int]:
        """Chosen candidates that come back for another one before their own next use, and could be dropped again."""
        return {
            number
            for number in self.chosen
            if self.back[number] < self.candidates[number].end and self.ways[number] is Way.RECOMPUTE
        }

    def most_over(self) -> int:
        """Bytes above the budget where they are most; negative where everything fits."""
        return int(self.during[self.situation.start :].max()) - self.situation.budget_bytes

    def sum_over(self) -> int:
        """Bytes above the budget, added up over all positions."""
        over = self.during[self.situation.start :] - self.situation.budget_bytes
        return int(np.maximum(over, 0).sum())

    def fits_host(self, number: int) -> bool:
        """Whether a candidate may wait on the host beside what waits there already."""
        host = self.situation.host
        if self.ways[number] is not Way.RELOAD or host is None:
            return True
        return self.host_bytes + self.nbytes[number] <= host.nbytes

    def neighbours(self, number: int) -> list[int]:
        """Candidates that are read to recompute one, and those that are recomputed from it."""
        return [*self.sources[number], *self.users[self.candidates[number].unit]]

    def seconds_for(self, number: int) -> float:
        """What is recomputed for a chosen candidate: itself, and what is dropped again, each time."""
        total = 0.0
        for position in (self.back[number], *self.meanwhile.get(number, ())):
            seen, waiting = {number}, [number]
            while waiting:
                user = waiting.pop()
                total += self.cost[user]
                for other in self.sources[user]:
                    is_away = other in self.until and self.begin[other] <= position < self.back[other]
                    if is_away and other not in seen:
                        seen.add(other)
                        waiting.append(other)
        return total

    def evictions(self) -> Iterable[Eviction]:
        """What is decided."""
        meanwhile = self._meanwhile()
        for number in self.chosen:
            candidate = self.candidates[number]
            if self.back[number] > self.begin[number]:
                between = tuple(sorted(meanwhile.get(number, ())))
                yield Eviction(candidate, self.ways[number], self.begin[number], self.back[number], between)

    def _meanwhile(self) -> Mapping[int, set[int]]:
        """Positions before which candidates are recomputed for others alone, as everything is back now."""
        if not self.until:
            return {}
        found: dict[int, set[int]] = {}
        waiting = [(number, self.back[number]) for number in self.chosen]
        while waiting:
            user, position = waiting.pop()
            if position <= self.begin[user]:
                continue
            for other in self.sources[user]:
                is_away = other in self.until and self.begin[other] <= position < self.back[other]
                if is_away and position not in found.setdefault(other, set()):
                    found[other].add(position)
                    waiting.append((other, position))
        return found

    def learn(self, script: Script) -> bool:
        """Count what recomputation took beyond the budget from now on; whether that is news."""
        is_news = False
        for position, nbytes in script.at_points.items():
            if nbytes <= self.situation.budget_bytes:
                continue
            beyond = nbytes - int(self.during[position])
            if beyond > 0:
                self.during[position] += beyond
                is_news = True
        return is_news
