"""Chooses candidates position by position without a look ahead, by the scores of DTR and of others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from neaptide.planner.points.search import Search

Floats: TypeAlias = NDArray[np.float64]
_Numbers: TypeAlias = NDArray[np.intp]
_Scores: TypeAlias = Callable[[int, _Numbers], Floats]


@dataclass(frozen=True, slots=True)
class Heuristic:
    """A score; the candidate with the least is evicted first.

    The score grows with the seconds of a candidate, of what is gone that it is made from, and of what is gone and made from
    it. It falls with the bytes that are freed, and with the seconds since the last use.
    """

    by_itself: bool = True
    by_above: bool = False
    by_below: bool = False
    by_bytes: bool = True
    by_staleness: bool = False


HEURISTICS: Final[Mapping[str, Heuristic]] = MappingProxyType(
    {
        "delta": Heuristic(),
        "dtr_local": Heuristic(by_staleness=True),
        "dtr": Heuristic(by_above=True, by_below=True, by_staleness=True),
        "evict_cheapest": Heuristic(by_above=True),
        "evict_largest": Heuristic(by_itself=False),
        "evict_oldest": Heuristic(by_itself=False, by_bytes=False, by_staleness=True),
    }
)
"""By name. The first is of DELTA (Tang et al. 2022); the others are h_local, h_DTR, h_MSPS, h_size and h_LRU of Kirisame et
al. (ICLR 2021)."""


def on_the_fly(search: Search, heuristic: Heuristic, *, drops: bool) -> None:
    """At each position that is above the budget, evict of what is idle there until it is not, or nothing is left.

    With `drops`, candidates that came back for others are dropped again where nothing else is left. O(evictions x (candidates
    + what is gone)).
    """
    budget, first = search.situation.budget_bytes, search.situation.start
    begins, ends = np.array(search.begin, dtype=np.intp), np.array([c.end for c in search.candidates])
    able = np.isfinite(search.cost) & (np.array(search.nbytes) > 0)
    able[list(search.chosen)] = False
    scores = _scores(search, heuristic)
    for position in range(first, len(search.during)):
        while search.during[position] > budget:
            idle = np.flatnonzero(able & (begins <= position) & (position < ends))
            idle = idle[np.array([search.fits_host(n) for n in idle.tolist()], dtype=bool)]
            if len(idle):
                number = int(idle[scores(position, idle).argmin()])
                able[number] = False
                search.begin[number] = position
                search.add(number)
            elif not drops or not _drop_again(search, position, scores):
                break


def _drop_again(search: Search, position: int, scores: _Scores) -> bool:
    """Drop the first that came back for another one, if that frees something at a position; whether one does."""
    there = [n for n in sorted(search.early) if search.back[n] <= position < search.candidates[n].end]
    early = np.array(there, dtype=np.intp)
    before = search.during[position]
    for number in early[scores(position, early).argsort(kind="stable")].tolist():
        kept = search.keep()
        search.drop_again(number)
        if search.during[position] < before:
            return True
        search.go_back(kept)
    return False


def _scores(search: Search, heuristic: Heuristic) -> _Scores:
    seconds, order = search.situation.sizes.repeat_seconds, search.shaped.units.order
    clock = np.concatenate(([0.0], np.cumsum([seconds[node] for node in order])))
    used, cost = clock[[c.start for c in search.candidates]], np.array(search.cost)
    nbytes = np.maximum(search.nbytes, 1)

    def scores(position: int, idle: _Numbers) -> Floats:
        score: Floats = cost[idle] if heuristic.by_itself else np.ones(len(idle))
        if heuristic.by_above or heuristic.by_below:
            score = score + _seconds_around(search, position, idle, heuristic)
        if heuristic.by_bytes:
            score = score / nbytes[idle]
        if heuristic.by_staleness:
            stale = clock[position] - used[idle]
            score = np.where(stale > 0, score / np.where(stale > 0, stale, 1.0), np.inf)
        return score

    return scores


def _seconds_around(search: Search, position: int, idle: _Numbers, heuristic: Heuristic) -> Floats:
    """Seconds of what is gone that some candidates are made from, and of what is gone and made from them."""
    candidates = search.candidates
    gone = {candidates[n].unit: n for n in search.chosen if search.begin[n] <= position < search.back[n]}
    if not gone:
        return np.zeros(len(idle))
    readers: dict[int, list[int]] = defaultdict(list)
    for number in gone.values():
        for source in candidates[number].sources:
            readers[source].append(number)

    def above(number: int) -> list[int]:
        return [gone[source] for source in candidates[number].sources if source in gone]

    def below(number: int) -> list[int]:
        return readers[candidates[number].unit]

    ways = [way for way, counts in ((above, heuristic.by_above), (below, heuristic.by_below)) if counts]

    def total(number: int) -> float:
        found = set().union(*(_reached(number, way) for way in ways))
        costs = (search.cost[other] for other in sorted(found))
        return sum(cost for cost in costs if cost < np.inf)  # what was gone before has no price any more

    return np.array([total(number) for number in idle.tolist()])


def _reached(number: int, following: Callable[[int], Sequence[int]]) -> set[int]:
    found: set[int] = set()
    waiting = [number]
    while waiting:
        new = [other for other in following(waiting.pop()) if other not in found]
        found.update(new)
        waiting += new
    return found
