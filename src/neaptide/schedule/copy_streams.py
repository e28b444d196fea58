"""The player of seconds: one compute stream and one copy engine each way.

Operations run one after the other. A copy begins when the compute stream reaches it, and when its engine has done the
copies issued before it; a wait holds the compute stream until its copy has ended. Two FIFO copy engines beside the
compute stream are what POFO (Beaumont et al., NeurIPS 2021) and Capuchin (Peng et al., ASPLOS 2020) assume. Operations
between two events are one sum, so a play costs what its copies cost.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple, TypeAlias

from neaptide.ir.schedule import StepKind


class Busy(NamedTuple):
    """For how many seconds from now on each copy engine has copies to make."""

    out_s: float = 0.0
    back_s: float = 0.0


IDLE: Final = Busy()
Key: TypeAlias = tuple[int, int]
Event: TypeAlias = "tuple[float, StepKind, Key, float | LoopCopies]"
"""Seconds of operations before it, and what happens: `STORE` or `LOAD` with the seconds of the copy, `WAIT` for the last
copy of that key, or `NODE` for a loop whose body has copies, which begins then."""


class Copy(NamedTuple):
    """A copy is issued when the compute stream reaches it, and starts when its engine begins it."""

    key: Key
    kind: StepKind
    issued_s: float
    start_s: float
    end_s: float


class Wait(NamedTuple):
    """The compute stream waits for a copy, or for those in a loop (as if at its begin)."""

    key: Key
    kind: StepKind
    begin_s: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Timeline:
    """When copies run, in seconds from the begin.

    Attributes:
        waits: in running order; a loop with copies waits as much as it takes longer than with idle engines.
        seconds: of operations and of waits.
        exposed_s: part of `seconds` in which the compute stream waits.
        busy: the engines at the end.
    """

    copies: tuple[Copy, ...]
    waits: tuple[Wait, ...]
    seconds: float
    exposed_s: float
    busy: Busy


def play(events: Iterable[Event], operations_s: float, busy: Busy = IDLE) -> Timeline:
    """Play events in running order beside operations of so many seconds. O(events)."""
    late = 0.0
    free = {StepKind.STORE: busy.out_s, StepKind.LOAD: busy.back_s}
    ends: dict[Key, float] = {}
    copies: list[Copy] = []
    waits: list[Wait] = []
    for at, kind, key, what in events:
        now = at + late
        waited = 0.0
        if isinstance(what, LoopCopies):
            trips = what.play(_left(free, now))
            waited = trips.waited_s - what.alone.waited_s
            end = now + trips.seconds
            free = {StepKind.STORE: end + trips.busy.out_s, StepKind.LOAD: end + trips.busy.back_s}
        elif kind is StepKind.WAIT:
            waited = ends.pop(key) - now
        else:
            start = max(now, free[kind])
            free[kind] = ends[key] = start + what
            copies.append(Copy(key, kind, now, start, start + what))
        if waited > 0.0:
            waits.append(Wait(key, kind, now, waited))
            late += waited
    end = operations_s + late
    return Timeline(tuple(copies), tuple(waits), end, late, _left(free, end))


def _left(free: dict[StepKind, float], now: float) -> Busy:
    return Busy(max(free[StepKind.STORE] - now, 0.0), max(free[StepKind.LOAD] - now, 0.0))


class Trip(NamedTuple):
    """What each of some trips of a loop does.

    Attributes:
        seconds: of its operations, and of the loops in it with idle engines.
        waited_s: part of `seconds` in which those loops wait.
    """

    seconds: float
    waited_s: float
    events: tuple[Event, ...]


class LoopTimes(NamedTuple):
    """What a loop takes; `waited_s` is the part of `seconds` in which it waits."""

    seconds: float
    waited_s: float
    busy: Busy


@dataclass(frozen=True)
class LoopCopies:
    """The trips of a loop whose body moves storages: how many are alike, and what each of them does.

    An engine that is busy when the loop begins makes the first trip longer. Every copy of a trip is waited for in that trip,
    so from the second trip on the engines are as the trip before has left them.
    """

    trips: tuple[tuple[int, Trip], ...]

    @cached_property
    def alone(self) -> LoopTimes:
        """What it takes where no other copies are under way when it begins."""
        return self.play(IDLE)

    def play(self, busy: Busy) -> LoopTimes:
        """What it takes. O(events of the trips that differ): trips are played until one leaves the engines as it found them."""
        seconds = waited_s = 0.0
        for count, trip in self.trips:
            left = count
            while left:
                played = play(trip.events, trip.seconds, busy)
                # The trips that are left do the same once nothing changes any more.
                times = left if played.busy == busy else 1
                seconds += times * played.seconds
                waited_s += times * (trip.waited_s + played.exposed_s)
                busy = played.busy
                left -= times
        return LoopTimes(seconds, waited_s, busy)
