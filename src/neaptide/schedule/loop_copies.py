"""Copies in the body of a loop: what its trips take beside the operations, and when they leave the engines free.

An engine that is busy when the loop begins makes the first trip longer. Every copy of a trip is waited for in that trip,
so from the second trip on the engines are as the trip before has left them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeAlias

from neaptide.ir.schedule import StepKind


class Busy(NamedTuple):
    """For how many seconds from now on each copy engine has copies to make."""

    out_s: float = 0.0
    back_s: float = 0.0


IDLE = Busy()


class LoopTimes(NamedTuple):
    """What a loop takes.

    Attributes:
        seconds: of its operations, and of waiting for its copies.
        waited_s: part of `seconds` in which it waits.
    """

    seconds: float
    waited_s: float
    busy: Busy


@dataclass(frozen=True, slots=True)
class Running:
    """Operations of a trip, one behind the other."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Copying:
    """A copy of a trip begins, or is waited for.

    Attributes:
        kind: `STORE`, `LOAD`, or `WAIT` for the one of the two that came last.
        key: of the storage, within the body.
    """

    kind: StepKind
    key: tuple[int, int]
    seconds: float = 0.0


@dataclass(frozen=True)
class LoopCopies:
    """The trips of a loop whose body moves storages.

    Attributes:
        trips: how many are alike, and what each of them does in running order; a loop in it has trips of its own.
    """

    trips: tuple[tuple[int, tuple[TripStep, ...]], ...]

    @cached_property
    def alone(self) -> LoopTimes:
        """What it takes where no other copies are under way when it begins."""
        return self._played(IDLE)

    def play(self, busy: Busy) -> LoopTimes:
        """What it takes. O(steps of the trips that differ): trips are played until one leaves the engines as it found them."""
        return self.alone if busy == IDLE else self._played(busy)

    def _played(self, busy: Busy) -> LoopTimes:
        seconds = waited_s = 0.0
        for count, steps in self.trips:
            left = count
            while left:
                trip = _trip(steps, busy)
                # The trips that are left do the same once nothing changes any more.
                times = left if trip.busy == busy else 1
                seconds += times * trip.seconds
                waited_s += times * trip.waited_s
                busy = trip.busy
                left -= times
        return LoopTimes(seconds, waited_s, busy)


TripStep: TypeAlias = Running | Copying | LoopCopies


def _trip(steps: tuple[TripStep, ...], busy: Busy) -> LoopTimes:
    """One trip, in seconds from its begin."""
    now = waited_s = 0.0
    out_free, back_free = busy
    ends: dict[tuple[int, int], float] = {}
    for step in steps:
        if isinstance(step, Running):
            now += step.seconds
        elif isinstance(step, LoopCopies):
            inner = step.play(Busy(max(out_free - now, 0.0), max(back_free - now, 0.0)))
            now += inner.seconds
            waited_s += inner.waited_s
            out_free, back_free = now + inner.busy.out_s, now + inner.busy.back_s
        elif step.kind is StepKind.STORE:
            out_free = ends[step.key] = max(now, out_free) + step.seconds
        elif step.kind is StepKind.LOAD:
            back_free = ends[step.key] = max(now, back_free) + step.seconds
        else:
            late = max(ends.pop(step.key) - now, 0.0)
            waited_s += late
            now += late
    return LoopTimes(now, waited_s, Busy(max(out_free - now, 0.0), max(back_free - now, 0.0)))
