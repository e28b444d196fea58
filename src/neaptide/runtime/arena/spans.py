"""Bytes of what a run makes, from step to step; and which results are worth a copy into the arena."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from neaptide.cost.devices import Device

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
_TOUCHES = 2  # a copy reads every byte once and writes it once


@dataclass(frozen=True, slots=True, eq=False)
class Spans:
    """Storages that a run makes, each with its bytes from one step to another."""

    starts: Ints
    ends: Ints  # one past the last step
    nbytes: Ints
    steps: int  # of the run

    def bytes_at(self, which: Flags, *, only_first: bool = False) -> Ints:
        """By step, the bytes of some; with `only_first` each is there at its first step alone, as the source of a copy is."""
        change = np.zeros(self.steps + 1, dtype=np.int64)
        starts, nbytes = self.starts[which], self.nbytes[which]
        np.add.at(change, starts, nbytes)
        np.add.at(change, starts + 1 if only_first else self.ends[which], -nbytes)
        found: Ints = np.cumsum(change)[:-1]
        return found

    def outside_at(self, is_inside: Flags, is_copied: Flags) -> Ints:
        """By step, bytes of what is not in the arena, and of the sources of copies into it."""
        return self.bytes_at(~is_inside) + self.bytes_at(is_copied, only_first=True)

    def copy_seconds(self, which: Flags, device: Device) -> float:
        """Predicted time of one copy of each."""
        traffic = _TOUCHES * int(self.nbytes[which].sum())
        return int(which.sum()) * device.launch_s + traffic / device.main_space.bandwidth_bytes_per_s

    def cheap_copies(self, is_open: Flags, is_inside: Flags, device: Device, seconds: float) -> Flags:
        """Which of those that may be copied are: those that live longest, while all copies stay cheap. O(open ones x steps).

        A copy holds its source and its place together for one step, so one that lifts the peak of the arena plus that of
        what is outside is not made.

        Args:
            is_inside: what is in the arena in any case.
            seconds: that all copies together may take.
        """
        arena, rest = self.bytes_at(is_inside), self.bytes_at(~is_inside)
        peak = int(arena.max(initial=0) + rest.max(initial=0))
        chosen = np.zeros_like(is_open)
        keys = np.flatnonzero(is_open)
        for key in keys[np.argsort(self.starts[keys] - self.ends[keys], kind="stable")].tolist():
            start, end, nbytes = int(self.starts[key]), int(self.ends[key]), int(self.nbytes[key])
            cost = device.launch_s + _TOUCHES * nbytes / device.main_space.bandwidth_bytes_per_s
            if cost > seconds:
                continue
            arena[start:end] += nbytes
            rest[start + 1 : end] -= nbytes  # the source is there for the step that copies
            now = int(arena.max() + rest.max())
            if now > peak:
                arena[start:end] -= nbytes
                rest[start + 1 : end] += nbytes
                continue
            peak = now
            seconds -= cost
            chosen[key] = True
        return chosen
