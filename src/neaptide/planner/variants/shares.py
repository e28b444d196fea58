"""What is left of the limits of a search over variants, in shares of the whole."""

from __future__ import annotations

import threading

from neaptide.ir.graph import Graph
from neaptide.outcome import LimitGuard, Limits
from neaptide.planner.variants.settings import SETTINGS


class Shares:
    """Counts what searches inside another one were given.

    Args:
        limits: of the whole.
        interrupt: set it and nothing is left.
    """

    def __init__(self, limits: Limits, interrupt: threading.Event | None = None) -> None:
        self.limits = limits
        self._guard = LimitGuard(limits, interrupt)
        self._spent = 0.0

    @property
    def is_unlimited(self) -> bool:
        """Whether there is neither a limit of time nor one of work."""
        return self.limits.time_s is None and self.limits.work is None

    def spend(self, share: float) -> None:
        """Take note of a search that was given a share of the work."""
        self._spent += share

    def left(self) -> float:
        """Share of the time, or of the work, that is left."""
        if self.limits.work is None or self.limits.time_s is not None or not self.of_time():
            return self.of_time()
        return max(1.0 - self._spent, 0.0)

    def of_time(self) -> float:
        """Share of the time that is left; all of it where there is no limit."""
        if self._guard.check_now() is not None:
            return 0.0
        remaining = self._guard.remaining_s()
        return remaining / self.limits.time_s if self.limits.time_s and remaining is not None else 1.0

    def part(self, share: float) -> Limits:
        """Limits of one search inside."""
        time_s = None if self.limits.time_s is None else share * self.limits.time_s
        work = None if self.limits.work is None else max(int(share * self.limits.work), 1)
        return Limits(time_s, work, self.limits.seed)


def searches_of(graph: Graph) -> int:
    """For how many searches a graph is charged: one for itself, and those that the bodies of its loops may take."""
    return SETTINGS.searches if any(node.regions for node in graph.nodes) else 1
