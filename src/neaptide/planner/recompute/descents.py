"""How much of a search one of its descents may take."""

from __future__ import annotations

import threading

from neaptide.outcome import LimitGuard, Limits
from neaptide.planner.recompute.settings import SETTINGS


def descent_tries(nodes: int) -> int:
    """Changes that one descent of many may try."""
    return SETTINGS.descent_tries_per_node * nodes + SETTINGS.least_descent_tries


def descent_guard(guard: LimitGuard, nodes: int, interrupt: threading.Event | None) -> LimitGuard:
    """What one descent of many may take of a search's limits; its work is still to be charged to that."""
    tries = descent_tries(nodes)
    if guard.limits.work is not None:
        tries = min(tries, max(guard.limits.work - guard.work, 0))
    return LimitGuard(Limits(guard.remaining_s(), tries, guard.limits.seed), interrupt)
