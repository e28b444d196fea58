"""A token bucket: how fast bytes may pass."""

from __future__ import annotations

import time
from collections.abc import Callable


class TokenBucket:
    """Tokens drop in at a rate, one for a byte, and a copy takes them.

    Every copy begins with an empty bucket: an engine that was idle has saved nothing up, as the link in
    `schedule.timeline`. Bytes pass first and are paid then, so a copy of n bytes ends n / rate after its begin, or later
    where the bytes themselves took longer. A pause that was too long is made up for within the same copy.

    Args:
        bytes_per_s: the rate, above zero.
        clock: seconds that never go back.
    """

    def __init__(self, bytes_per_s: float, clock: Callable[[], float] = time.perf_counter) -> None:
        self._bytes_per_s = bytes_per_s
        self._clock = clock
        self._paid_at_s = clock()

    def begin(self) -> None:
        """A copy begins."""
        self._paid_at_s = self._clock()

    def pay(self, nbytes: int) -> float:
        """Pay for bytes that have passed: seconds until there are tokens for them, 0 where there are already."""
        self._paid_at_s += nbytes / self._bytes_per_s
        return max(self._paid_at_s - self._clock(), 0.0)
