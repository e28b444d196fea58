"""Chooses candidates by what all of them free together, until nothing is above the budget."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from neaptide.planner.points.search import Search
from neaptide.symbolic.stacked import Ints

_ONE_BY_ONE = 256  # candidates that are chosen one at a time; then they are in bulk, so that it ends
_IN_BULK = 32

Bools: TypeAlias = NDArray[np.bool_]
Floats: TypeAlias = NDArray[np.float64]
Score: TypeAlias = Callable[[Ints, Ints], Ints]
"""By candidate, what it is worth: from the bytes it frees of those that are too many, and at how many positions."""


def cover(search: Search, score: Score, *, apart: bool = False) -> None:
    """Until nothing is above the budget, or nothing helps. What comes back early may be dropped again instead.

    When nothing helps any more, what only brought back others is tried once more, with these dropped again.
    With `apart`, a candidate is dearer by what is chosen of those that it is recomputed from and that are recomputed from
    it, as in DTR: then what is evicted lies in short chains.
    """
    if not search.candidates:
        return
    _cover(search, score, apart, drops=False)
    if search.most_over() > 0:
        _cover(search, score, apart, drops=True)
    search.put_back()
    search.settle()


def _cover(search: Search, score: Score, apart: bool, *, drops: bool) -> None:
    budget, first = search.situation.budget_bytes, search.situation.start
    begins, ends = np.array(search.begin, dtype=np.intp), np.array([c.end for c in search.candidates])
    nbytes, cost = np.array(search.nbytes, dtype=np.int64), np.array(search.cost)
    finite = np.isfinite(cost)
    around = np.zeros(len(cost))
    for number in search.chosen if apart else ():
        around[search.neighbours(number)] += search.cost[number]
    free = finite & (nbytes > 0)
    free[list(search.chosen)] = False
    stays: set[int] = set()
    while True:
        over = search.during - budget
        over[:first] = 0
        most = int(over.max())
        if most <= 0:
            break
        steps = np.concatenate(([0], np.cumsum(over > 0)))
        early = sorted(search.early - stays)
        begins[early] = [search.back[n] for n in early]
        free[early] = finite[early]
        hot = np.where(free, steps[ends] - steps[begins], 0)
        free[early] = False
        gain = score(np.minimum(nbytes, most), hot)
        scores = np.where(hot > 0, (cost + around) / np.maximum(gain, 1), np.inf)
        in_bulk = len(search.chosen) >= _ONE_BY_ONE
        picked = np.argsort(scores, kind="stable")[:_IN_BULK] if in_bulk else np.array([scores.argmin()])
        picked = picked[np.isfinite(scores[picked])]
        if not len(picked):
            break
        search.priced.work += len(picked)
        before = int(np.maximum(over, 0).sum())
        for number in picked.tolist():
            if number in search.chosen:
                stays.add(number)
            free[number] = False
            if search.fits_host(number):
                was_there = number in search.chosen
                before = _try(search, number, before, finite if drops else None)
                if apart and not was_there and number in search.chosen:
                    around[search.neighbours(number)] += cost[number]


def _try(search: Search, number: int, before: int, droppable: Bools | None) -> int:
    """Choose a candidate, or drop it again, unless that only brings back what others free; those `droppable` may go again at once.

    Gives bytes times positions that are too many, which were `before`.
    """
    kept = search.keep()
    if number in search.chosen:
        search.drop_again(number)
    else:
        search.add(number)
    now = search.sum_over()
    if now >= before and droppable is not None:
        whole = dict(enumerate(kept.back)) | {number: search.candidates[number].end}
        while sooner := [n for n in sorted(search.early) if search.back[n] < whole[n] and droppable[n]]:
            for other in sooner:
                search.drop_again(other)
        now = search.sum_over()
    if now < before:
        return now
    search.go_back(kept)
    return before
