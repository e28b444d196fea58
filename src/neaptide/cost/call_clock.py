"""Times calls: without what other programs take, and without the clock itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Final

import torch

_READINGS: Final = 101


class CallClock:
    """A clock for calls on the CPU; reading it is taken off."""

    def __init__(self) -> None:
        # The thread's clock does not see what the threads of a kernel do.
        self._now: Callable[[], float] = (
            time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
        )
        self._reading_s = median(self._between(self._now(), self._now()) for _ in range(_READINGS))

    def seconds(self, work: Callable[[], object]) -> float:
        """Seconds of `work`, what it returns being dropped within; at least zero."""
        before = self._now()
        work()
        return max(0.0, self._now() - before - self._reading_s)

    @staticmethod
    def _between(before: float, after: float) -> float:
        return after - before
