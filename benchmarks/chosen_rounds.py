"""Rounds that choose among programs and rounds that are reported, for the benchmarks that run plans in turns.

All programs run in all rounds, and every other round chooses. What a program finds in heap and caches depends on those that run
beside it: with two series, of all programs and of those that were chosen, ratios of the second were 1 to 3 % higher.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from neaptide.plans import TrialRow
    from neaptide.runtime.comparing.contestants import Measured

SEED: Final = 0
TOLERANCE: Final = 0.03
"""By so much a measured time may be above its limit, since times are noisy."""


def longest(latency: float) -> float:
    """The longest time over eager's that counts for a limit, in the rounds that are reported.

    Args:
        latency: per cent of more time.
    """
    return (1 + latency / 100) * (1 + TOLERANCE)


def rounds_of_both(rounds: int) -> int:
    """How many rounds there are where so many are reported."""
    return 2 * rounds


def parted(found: Mapping[str, Measured]) -> tuple[dict[str, Measured], dict[str, Measured]]:
    """What was measured in the rounds that choose, and in those that are reported; the first one chooses."""
    return _every_other(found, 0), _every_other(found, 1)


def _every_other(found: Mapping[str, Measured], first: int) -> dict[str, Measured]:
    parts = {}
    for name, one in found.items():
        assert one.times is not None
        times = replace(one.times, wall_s=one.times.wall_s[first::2], cpu_s=one.times.cpu_s[first::2])
        parts[name] = replace(one, times=times)
    return parts


def tried(peak_bytes: int, measured: Measured, eager: Measured) -> TrialRow:
    """A program in the rounds that choose.

    Args:
        peak_bytes: with workspace.
        measured: in these rounds.
        eager: likewise.
    """
    from neaptide.plans import TrialRow
    from neaptide.runtime.measuring.timing import median_ratio

    assert measured.times is not None
    assert eager.times is not None
    own = measured.times.cpu_s
    ratio = median_ratio(own, eager.times.cpu_s, seed=SEED)
    return TrialRow("", peak_bytes, 1.0, ratio.ratio, ratio.low, ratio.high, statistics.median(own))


def chosen_for(trials: Sequence[TrialRow], latencies: Sequence[int]) -> list[list[int]]:
    """By program of one kind, the limits of time that it is chosen for.

    For each limit that is the lowest peak within it; where none is, the fastest program.
    """
    from neaptide.runtime.comparing.trials import TrialLimit

    found: list[list[int]] = [[] for _ in trials]
    for latency in latencies:
        # Half of the tolerance is left for the rounds that are reported.
        limit = TrialLimit(longest_ratio=(1 + latency / 100) * (1 + TOLERANCE / 2))
        found[limit.choose(trials)[0]].append(latency)
    return found


def measured_beside(measured: Measured, eager: Measured) -> dict[str, Any]:
    """Peaks of a program, and its processor times in the rounds that are reported, beside eager's."""
    from neaptide.runtime.measuring.timing import median_ratio

    memory, times = measured.memory, measured.times
    assert times is not None
    assert eager.times is not None
    ratio = median_ratio(times.cpu_s, eager.times.cpu_s, seed=SEED)
    return {
        "measured_peak_bytes": memory.measured_peak_bytes,
        "measured_allocator_peak_bytes": memory.measured_allocator_peak_bytes,
        "peak_share": memory.measured_allocator_peak_bytes / eager.memory.measured_allocator_peak_bytes,
        "cpu_seconds": statistics.median(times.cpu_s),
        "cpu_ratio": ratio.ratio,
        "cpu_ratio_low": ratio.low,
        "cpu_ratio_high": ratio.high,
    }
