"""Times calls: without what other programs take, without the clock itself, and without the system's fresh pages."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Final

import torch

from neaptide.cost.fresh_pages import seconds_per_fresh_byte
from neaptide.cost.host import page_bytes, page_faults

_READINGS: Final = 101


class CallClock:
    """A clock for calls on the CPU; reading it is taken off.

    Pages that a call touches for the first time are counted and their time is taken off, since which calls get fresh
    pages follows from what was allocated and freed before, and is priced apart (`Device.fresh_seconds`).
    """

    def __init__(self) -> None:
        # The thread's clock does not see what the threads of a kernel do.
        self._now: Callable[[], float] = (
            time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
        )
        self._fault_s = seconds_per_fresh_byte() * page_bytes()
        self._reading_s = median(self._between(self._now(), self._now()) for _ in range(_READINGS))

    def seconds(self, work: Callable[[], object]) -> float:
        """Seconds of `work`, what it returns being dropped within; at least zero."""
        faults = page_faults() or 0
        before = self._now()
        work()
        elapsed = self._now() - before - self._reading_s
        return max(0.0, elapsed - self._fault_s * ((page_faults() or 0) - faults))

    @staticmethod
    def _between(before: float, after: float) -> float:
        return after - before
