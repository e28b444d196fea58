"""Layouts over several memory spaces: a cheap choice of spaces for which every space has a layout.

`filling` fills the spaces one after another, the cheapest for a byte first, in several ways. The cheapest answer is
kept. `bounds` gives a cost that no layout goes below.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from neaptide.layout.pools.banked import place_banked_greedy
from neaptide.layout.pools.bounds import SectionLoads, cost_bound, excluded_space
from neaptide.layout.pools.check import check_pooled_layout
from neaptide.layout.pools.filling import WAYS, fill_spaces
from neaptide.layout.pools.space_packer import SpacePacker
from neaptide.layout.pools.spaces import PooledLayout, PooledProblem
from neaptide.outcome import LimitGuard, Limits, Outcome, Termination, TerminationReason


def place_in_spaces(
    pooled: PooledProblem, limits: Limits | None = None, interrupt: threading.Event | None = None
) -> Outcome[PooledLayout]:
    """A place for every buffer, at little cost. Anytime: the first way to fill the spaces always runs to its end.

    All of `WAYS`, and the banked greedy rule; the cheapest is kept. A unit of work is
    one buffer laid out once; under a work limit alone the answer is the same everywhere.

    Args:
        pooled: buffers and spaces.
        limits: of time and work.
        interrupt: when set, the best so far is returned.

    Returns:
        `OPTIMAL` where the cost meets the lower bound, else `FEASIBLE`. `INFEASIBLE` only where bytes at one step
        prove it; `NO_SOLUTION_FOUND` proves nothing. `best` and `bound` are costs.
    """
    guard = LimitGuard(limits or Limits(), interrupt)
    sections = SectionLoads(pooled.problem)
    reason = excluded_space(pooled, sections)
    if reason is not None:
        return Outcome(None, Termination(TerminationReason.INFEASIBLE, detail=reason), guard.seconds())
    bound = cost_bound(pooled, sections)
    packer = SpacePacker(pooled, guard)
    ways: list[Callable[[], PooledLayout | None]] = [
        partial(fill_spaces, pooled, sections, bound, density, packer, inserts=inserts)
        for density, inserts in WAYS
    ]
    ways.append(partial(place_banked_greedy, pooled))
    best: PooledLayout | None = None
    for way in ways:
        found = way()
        if found is not None and (best is None or found.cost < best.cost):
            check_pooled_layout(pooled, found)
            best = found
        if best is not None and best.cost <= bound.cost:
            break
        if guard.exhausted(len(pooled)) is not None or guard.check_now() is not None:
            break
    cost = None if best is None else best.cost
    detail = "" if best is not None else "no way to fill the spaces leaves every buffer a place"
    return guard.finish(best, best=cost, bound=bound.cost, detail=detail)
