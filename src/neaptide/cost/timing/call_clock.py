"""Times calls: without what other programs take, without the clock itself, at one speed of the processor, in used memory.

A processor that shares a core with another program, or changes its frequency, takes up to twice as long for all that it
computes. Which speed it has is no property of a call, and it changes from one second to the next. So a piece of work that is
always the same, the clock reference, is timed again and again beside the calls.

Fresh pages take longer than most of what is timed. The allocator of glibc takes blocks from the end of its heap, and gives
that end back to the system when enough of it is free. Which calls then touch fresh pages follows from everything that the
process ever allocated, not from the call. So touched blocks are freed below one that stays: it keeps the end of the heap
where it is, and calls get what is below it. Blocks of 32 MiB or more are mapped for themselves, and are fresh here as in a
program. Other allocators only lose the time that it takes to touch the blocks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Final

import torch

from neaptide.cost import host

_READINGS: Final = 101
_CLOCK_REFERENCE_SIZE: Final = 96
"""A product of matrices of this size takes about 20 µs, from the innermost caches."""
_CLOCK_REFERENCE_READINGS: Final = 9
"""After a convolution, beside five other programs on two cores, the median of 3 differed by 0.19 of itself from
one to the next, that of 9 by 0.03, as what is timed does; the first readings find cold caches."""
# What else runs comes and goes within milliseconds, so the usual speed is a median over 0.2 s, of runs in a row as calls are: after a
# pause a worker thread of torch is woken late, by 4 to 80 ms beside other programs, and that is the speed of nothing. With more
# threads than processors that are free it happens without a pause as well. So there are at least a hundred runs: those of one
# millisecond in which all threads run outnumber the others.
_USUAL_S: Final = 0.2
_LEAST_RUNS: Final = 101
_LONGEST_S: Final = 5.0
_MOST_RUNS: Final = 30_000
# A speed that was seen longer ago is seen to again; that takes less than a hundredth of the time.
_LATELY_S: Final = 1e-2
_WRONG_REFERENCE: Final = 2.0
"""A kept reference that is longer than that of now by this factor is wrong: a processor that shares its core takes up to twice as long."""


class CallClock:
    """A clock for calls on the CPU; reading it is taken off.

    `reference_s` are seconds of the clock reference at the speed that times are told for; by default at that of now, which takes 0.2 s.
    """

    def __init__(self, reference_s: float | None = None) -> None:
        # The thread's clock does not see what the threads of a kernel do.
        self._now: Callable[[], float] = (
            time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
        )
        self._reading_s = median(-(self._now() - self._now()) for _ in range(_READINGS))
        matrix = torch.ones(_CLOCK_REFERENCE_SIZE, _CLOCK_REFERENCE_SIZE)
        self._clock_reference: Callable[[], object] = lambda: torch.mm(matrix, matrix)
        self._seen_at = float("-inf")
        self._seen_s = 0.0
        self.reference_s = self.usual_reference_s() if reference_s is None else reference_s

    def seconds(self, work: Callable[[], object]) -> float:
        """Seconds of `work` at the clock's speed, what it returns being dropped within; at least zero."""
        if time.monotonic() - self._seen_at > _LATELY_S:
            self._see()
        reference_s = self._seen_s
        spent_s = self._plain_seconds(work)
        if spent_s > _LATELY_S:
            self._see()
            reference_s = (reference_s + self._seen_s) / 2
        # A clock that is too coarse to time the clock reference tells no speed.
        return spent_s * self.reference_s / reference_s if self.reference_s and reference_s else spent_s

    def usual_reference_s(self) -> float:
        """Seconds of the clock reference at the speed of now, a median over 0.2 s in a row; the lowest tenth where most were disturbed."""
        began = time.monotonic()
        found: list[float] = []
        while len(found) < _MOST_RUNS:
            found.append(self._plain_seconds(self._clock_reference))
            passed_s = time.monotonic() - began
            if passed_s >= (_USUAL_S if len(found) >= _LEAST_RUNS else _LONGEST_S):
                break
        if len(found) < _LEAST_RUNS:
            return min(found)  # so few runs were all disturbed, more or less
        usual, tenth = median(found), sorted(found)[len(found) // 10]
        return tenth if usual > _WRONG_REFERENCE * tenth else usual

    def reference_now_s(self) -> float:
        """Seconds of the clock reference at this moment; takes 0.2 ms."""
        return median(self._plain_seconds(self._clock_reference) for _ in range(_CLOCK_REFERENCE_READINGS))

    def has_wrong_reference(self) -> bool:
        """Whether the kept reference takes more than twice as long as now; takes 0.2 s more where it seems so."""
        return (
            self.reference_s > _WRONG_REFERENCE * self.reference_now_s()
            and self.reference_s > _WRONG_REFERENCE * self.usual_reference_s()
        )

    def _see(self) -> None:
        self._seen_s = self.reference_now_s()
        self._seen_at = time.monotonic()

    def _plain_seconds(self, work: Callable[[], object]) -> float:
        before = self._now()
        work()
        return max(0.0, self._now() - before - self._reading_s)


_WORTH_TELLING: Final = 0.05
"""Speeds that differ by less are told as one: so much differs from one second to the next."""


@dataclass(frozen=True, slots=True)
class ClockNormalisation:
    """The speed that costs are kept at and one that was seen, each in seconds of the clock reference."""

    kept_s: float
    seen_s: float

    @property
    def factor(self) -> float:
        """How many times as long the processor takes as at the speed that costs are kept at."""
        # A clock that is too coarse to time the clock reference tells no speed.
        return self.seen_s / self.kept_s if self.kept_s and self.seen_s else 1.0

    @property
    def is_worth_telling(self) -> bool:
        """Whether the two differ so much that a reader should know."""
        return abs(self.factor - 1) > _WORTH_TELLING


_BLOCK_BYTES: Final = 2**25 - 2**17
"""Nearly as large as a block can be that is not mapped for itself (glibc, `DEFAULT_MMAP_THRESHOLD_MAX`)."""
_SMALL_BYTES: Final = 2**20
"""Calls that take no more find used memory anyway."""
_MOST_BYTES: Final = 2**29
_SHARE_OF_FREE_MEMORY: Final = 1 / 8


@contextmanager
def used_memory(nbytes: int) -> Iterator[None]:
    """Within, blocks are of memory that was touched before, as far as so many bytes go.

    Takes up to 2 µs for each page. At most 512 MiB are touched, and at most an eighth of what is free.
    """
    most = min(_MOST_BYTES, int(host.memory_available_bytes() * _SHARE_OF_FREE_MEMORY))
    count = -(-min(nbytes, most) // _BLOCK_BYTES) if nbytes > _SMALL_BYTES else 0
    # What is mapped for itself and then freed teaches the allocator to take blocks of that size from its heap.
    _blocks(count + 1).clear()
    # A hole of the heap may have taken the last one; what lies highest keeps the heap's end.
    blocks = sorted(_blocks(count + 1), key=torch.Tensor.data_ptr)
    kept = blocks.pop()
    while blocks:  # no name may keep a block alive
        blocks.pop(0).fill_(0)
    try:
        yield
    finally:
        del kept


def _blocks(count: int) -> list[torch.Tensor]:
    return [torch.empty(_BLOCK_BYTES, dtype=torch.uint8) for _ in range(count)]
