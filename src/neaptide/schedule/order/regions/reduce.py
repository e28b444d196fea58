"""Exact reduction of an ordering problem: regions that may be scheduled on their own become macro ops."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from neaptide.outcome import LimitGuard, Limits
from neaptide.schedule.order.regions.contraction import ChainGraph, ContractionStats
from neaptide.schedule.order.steps import Steps

REGION_STATES: Final = 20_000
"""Downsets of one region: a tenth of a second or two."""


@dataclass(frozen=True, slots=True)
class Reduced:
    """Fewer steps with the same best peak.

    Attributes:
        steps: its ops are macro ops: stretches of original ops in a fixed order.
        contents: by macro op, the original ops that it runs, in order.
        limit: which limit stopped the reduction (`time`, `work`, `interrupt`); None if it came to its end.
    """

    steps: Steps
    contents: tuple[tuple[int, ...], ...]
    stats: ContractionStats
    limit: str | None

    def expand(self, order: Iterable[int]) -> tuple[int, ...]:
        """The order of the original ops that an order of macro ops stands for; it has the same peak."""
        return tuple(op for macro in order for op in self.contents[macro])

    @property
    def is_solved(self) -> bool:
        """Whether only one order is left, which is then a best one."""
        return all(index - 1 in before for index, before in enumerate(self.steps.predecessors) if index)


def reduce(
    steps: Steps,
    limits: Limits | None = None,
    *,
    region_states: int = REGION_STATES,
    interrupt: threading.Event | None = None,
    sizes: Sequence[int] = (),
) -> Reduced:
    """Replace every region that may be scheduled on its own by the segments of a dominant schedule.

    Runs of ops, independent branches, series-parallel parts, trees and single-entry single-exit regions, inner ones
    first and equal ones once. The best peak stays exactly what it was, and every order of what is left stands for one
    of the original with the same peak. O(n log n) besides the regions.

    Args:
        limits: time, and work in downsets; on meeting one, what has been contracted so far is returned.
        sizes: by op, how many ops it stands for in the stats; 1 each without it.
    """
    guard = LimitGuard(limits or Limits(), interrupt)
    graph = ChainGraph(steps, state_limit=region_states, guard=guard, sizes=sizes)
    graph.contract()
    limit = guard.check_now()
    if len(graph.live()) < steps.op_count:
        smaller, contents = graph.to_steps()
    else:
        smaller, contents = steps, [(op,) for op in range(steps.op_count)]
    return Reduced(smaller, tuple(contents), graph.stats, limit)
