"""Which results are worth a copy into the arena: those that live longest, while the copies stay cheap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from neaptide.cost.devices import Device

_TOUCHES = 2  # a copy reads every byte once and writes it once


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes from one step to another."""

    start: int
    end: int
    nbytes: int


def copy_seconds(spans: Sequence[Span], device: Device) -> float:
    """Predicted time of one copy of each. O(spans)."""
    traffic = _TOUCHES * sum(span.nbytes for span in spans)
    return len(spans) * device.launch_s + traffic / device.main_space.bandwidth_bytes_per_s


def choose_copies(
    candidates: Mapping[int, Span],
    inside: Sequence[Span],
    outside: Sequence[Span],
    *,
    step_count: int,
    device: Device,
    seconds: float,
) -> list[int]:
    """Keys of those that are copied, ascending. O(candidates * steps).

    A copy holds its source and its place together for one step, so one that lifts the peak of the arena plus that of
    what is outside is not made.
    """
    arena = _bytes_at(inside, step_count)
    rest = _bytes_at([*outside, *candidates.values()], step_count)
    peak = int(arena.max(initial=0) + rest.max(initial=0))
    chosen: list[int] = []
    longest_first = sorted(candidates, key=lambda k: (candidates[k].start - candidates[k].end, k))
    for key in longest_first:
        span = candidates[key]
        cost = copy_seconds([span], device)
        if cost > seconds:
            continue
        arena[span.start : span.end] += span.nbytes
        rest[span.start + 1 : span.end] -= span.nbytes  # the source is there for the step that copies
        now = int(arena.max() + rest.max())
        if now > peak:
            arena[span.start : span.end] -= span.nbytes
            rest[span.start + 1 : span.end] += span.nbytes
            continue
        peak = now
        seconds -= cost
        chosen.append(key)
    return sorted(chosen)


def _bytes_at(spans: Sequence[Span], step_count: int) -> NDArray[np.int64]:
    change = np.zeros(step_count + 1, dtype=np.int64)
    for span in spans:
        change[span.start] += span.nbytes
        change[span.end] -= span.nbytes
    return np.cumsum(change)[:-1]
