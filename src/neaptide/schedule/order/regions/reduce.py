"""Exact reduction of an ordering problem: regions that may be scheduled on their own become macro ops."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from neaptide.outcome import LimitGuard, Limits, Stopwatch
from neaptide.schedule.order.problem import OrderProblem
from neaptide.schedule.order.regions.contraction import REGION_CHAINS, ChainGraph
from neaptide.schedule.order.regions.parts import SkippedRegion, SolvedPart
from neaptide.schedule.order.regions.pieces import rebuild
from neaptide.schedule.order.settings import DEFAULT
from neaptide.schedule.order.steps import to_steps

_REBUILD_SHARE: Final = 4


@dataclass(frozen=True, slots=True)
class ReductionStats:
    """What a reduction did.

    Attributes:
        series: runs joined into one chain.
        unions: sets of independent chains merged.
        regions: solved over their downsets, those out of the cache included.
        cached: of `regions`, those equal to one solved before.
        states: downsets looked at.
        skipped: regions that stay, with a bound and the reason.
        parts: what was solved on its own, in order; see `sizes` of `reduce`.
        limit: which limit stopped the reduction (`time`, `work`, `interrupt`); None if it came to its end.
        seconds: wall-clock.
    """

    series: int
    unions: int
    regions: int
    cached: int
    states: int
    skipped: tuple[SkippedRegion, ...]
    parts: tuple[SolvedPart, ...]
    limit: str | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Reduced:
    """A smaller problem with the same best peak.

    Attributes:
        problem: its ops are macro ops: stretches of original ops in a fixed order.
        contents: by macro op, the original ops that it runs, in order.
        stats: what was done.
    """

    problem: OrderProblem
    contents: tuple[tuple[int, ...], ...]
    stats: ReductionStats

    def expand(self, order: Iterable[int]) -> tuple[int, ...]:
        """The order of the original ops that an order of macro ops stands for; it has the same peak."""
        return tuple(op for macro in order for op in self.contents[macro])

    @property
    def is_solved(self) -> bool:
        """Whether only one order is left, which is then a best one."""
        return all(index - 1 in before for index, before in enumerate(self.problem.predecessors) if index)


def reduce(
    problem: OrderProblem,
    limits: Limits | None = None,
    *,
    region_states: int = DEFAULT.region_states,
    region_chains: int = REGION_CHAINS,
    interrupt: threading.Event | None = None,
    sizes: Sequence[int] = (),
) -> Reduced:
    """Replace every region that may be scheduled on its own by the segments of a dominant schedule.

    Runs of ops, independent branches, series-parallel parts, trees and single-entry single-exit regions, inner ones
    first and equal ones once. The best peak stays exactly what it was, and every order of the reduced problem
    stands for one of the original with the same peak. Regions with more than `region_states` downsets stay and are
    named in the stats. O(n log n) besides the regions.

    Args:
        problem: what to reduce.
        limits: time, and work in downsets; on meeting one, what has been contracted so far is returned.
        region_states: most downsets of one region.
        region_chains: most chains of one region; looking for larger ones takes time even where there are none.
        interrupt: when set, like a limit.
        sizes: by op, how many ops it stands for in the stats; 1 each without it.
    """
    limits = limits or Limits()
    watch = Stopwatch()
    steps = to_steps(problem)
    # Writing the problem back comes after the limit and takes as long as a few readings: that much is kept free.
    used = (1 + _REBUILD_SHARE) * watch.seconds()
    time_s = None if limits.time_s is None else max(0.0, limits.time_s - used)
    guard = LimitGuard(replace(limits, time_s=time_s), interrupt)
    graph = ChainGraph(steps, state_limit=region_states, guard=guard, most_chains=region_chains, sizes=sizes)
    graph.contract()
    done, limit = graph.stats, guard.check_now()
    if done.series or done.unions or done.regions:
        smaller, contents = rebuild(problem, steps, graph)
    else:
        smaller, contents = problem, [(op,) for op in range(problem.op_count)]
    stats = ReductionStats(
        series=done.series,
        unions=done.unions,
        regions=done.regions,
        cached=done.cached,
        states=done.states,
        skipped=tuple(done.skipped),
        parts=tuple(done.parts),
        limit=limit,
        seconds=watch.seconds(),
    )
    return Reduced(smaller, tuple(contents), stats)
