"""Honest ratios of run times on a machine that is busy with other things.

Programs that are compared run in turns, so that a slow minute hits all of them, and the ratio is taken
within each round. A confidence interval comes with every ratio. What a program finds in heap and caches depends on the
program before it, so that some comparisons run each twice a turn and count the second.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from neaptide.errors import UsageError

_CONFIDENCE: Final = 0.95
_RESAMPLES: Final = 2000
Step = Callable[[], object]
Timer = Callable[[], tuple[float, float]]
"""Runs a program, and returns its (wall, processor) seconds."""


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Seconds of each repetition of one program.

    Attributes:
        cpu_s: processor time of all threads of this process; other programs do not add to it.
    """

    wall_s: tuple[float, ...]
    cpu_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class RatioEstimate:
    """Median ratio of two programs' times with its confidence interval."""

    ratio: float
    low: float
    high: float
    confidence: float


def interleaved(
    fns: Mapping[str, Step],
    repeats: int,
    *,
    warmup: int = 1,
    before_each: int = 0,
    synchronize: Step | None = None,
) -> dict[str, StepTimes]:
    """Times several programs in rounds: each round times all of them once, beginning with another one.

    Args:
        before_each: calls of a program right before each that is timed, which finds heap and caches as that program leaves
            them, and not as the one before it does.
    """
    for _ in range(warmup):
        for fn in fns.values():
            time_once(fn, synchronize=synchronize)
    timers = {
        name: partial(time_once, fn, before=before_each, synchronize=synchronize) for name, fn in fns.items()
    }
    return in_turns(timers, repeats)


def in_turns(
    timers: Mapping[str, Timer], repeats: int, *, between: Step | None = None
) -> dict[str, StepTimes]:
    """Asks each of some timers once a round, every round beginning with another one."""
    names = list(timers)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for round_index in range(repeats):
        first = round_index % len(names)
        for name in names[first:] + names[:first]:
            times[name].append(timers[name]())
            if between is not None:
                between()
    return {
        name: StepTimes(tuple(wall for wall, _ in pairs), tuple(cpu for _, cpu in pairs))
        for name, pairs in times.items()
    }


def time_once(fn: Step, *, before: int = 0, synchronize: Step | None = None) -> tuple[float, float]:
    """(wall, processor) seconds of one call; its result is dropped after the clocks are read."""
    for _ in range(before):
        fn()
    if synchronize is not None:
        synchronize()
    wall, cpu = time.perf_counter(), time.process_time()
    result = fn()
    if synchronize is not None:
        synchronize()
    elapsed = time.perf_counter() - wall, time.process_time() - cpu
    del result
    return elapsed


def median_ratio(numerator: Sequence[float], denominator: Sequence[float], *, seed: int = 0) -> RatioEstimate:
    """Median over rounds of `numerator / denominator`, with a percentile bootstrap interval over rounds.

    Both sequences come from one `interleaved` call: entry i of each was timed in round i. Percentile
    bootstrap after Efron, "Bootstrap methods: another look at the jackknife" (1979).
    """
    import numpy as np

    above, below = np.asarray(numerator, dtype=np.float64), np.asarray(denominator, dtype=np.float64)
    assert above.size == below.size > 0, "the ratio is taken round by round"
    if not (np.isfinite(above + below).all() and above.min() > 0 and below.min() > 0):
        raise UsageError(
            "a time is not above zero",
            why="the clock may be too coarse for one call",
            next_step="time several calls as one program",
        )
    ratios = above / below
    chosen = np.random.default_rng(seed).integers(0, ratios.size, size=(_RESAMPLES, ratios.size))
    medians = np.median(ratios[chosen], axis=1)
    tail = (1 - _CONFIDENCE) / 2
    low, high = np.quantile(medians, [tail, 1 - tail])
    return RatioEstimate(float(np.median(ratios)), float(low), float(high), _CONFIDENCE)
