"""Placement: when the storages of chosen gaps leave and return, within a budget and with little waiting.

A copy to the host begins right behind the last use. To wait for it later never takes longer, and a load that begins
earlier never ends later; both cost bytes. So each stay begins with the fewest bytes: away over its whole gap. Then the
room under the budget is given away. First each stay gets what hides its copies: the wait moves back until its copy is
done, the load moves forward until it is done in time, the one that is needed first first. What room is left then goes
to earlier loads and later waits, so that a copy that is slower than predicted does less harm.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from neaptide.ir.schedule import BETWEEN, HostStay, StepKind
from neaptide.linear.arrays import Floats
from neaptide.planner.offload.gaps import IdleGap, away_bytes
from neaptide.planner.offload.settings import SETTINGS
from neaptide.schedule.copy_streams import IDLE, Key, Timeline
from neaptide.schedule.evaluate import Ints
from neaptide.schedule.timeline import OffloadClock, Places


@dataclass(frozen=True, slots=True)
class PlacedStays:
    """Where stays leave and return.

    Attributes:
        gaps: that they fill, in the order in which they begin.
        places: of each.
        times: of their copies.
        peak_bytes: on the device, workspace included.
    """

    gaps: tuple[IdleGap, ...]
    places: tuple[Places, ...]
    times: Timeline
    peak_bytes: int

    def stays(self) -> tuple[HostStay, ...]:
        """The same by position, in the order in which they are stored, then by storage."""
        found = [
            HostStay(gap.storage, gap.occurrence, *places)
            for gap, places in zip(self.gaps, self.places, strict=True)
        ]
        return tuple(sorted(found, key=lambda stay: (stay.store_behind, stay.storage, stay.occurrence)))


def place_stays(
    profile: Ints,
    gaps: Sequence[IdleGap],
    budget_bytes: int,
    clock: OffloadClock,
    *,
    rounds: int | None = None,
    most_exposed_s: float = math.inf,
) -> PlacedStays:
    """Fill gaps within a budget; above it only where it cannot be met by filling all of them.

    Where two stays want the same room, the one whose copy is waited for goes first in the next round (squeaky wheel
    optimization, Joslin and Clements 1999). O(rounds x (stays x (positions in their gaps + log stays))).

    Args:
        profile: bytes at each position with all storages on the device.
        gaps: to fill, in the order of `idle_gaps`.
        budget_bytes: highest bytes on the device, workspace included.
        clock: of the same sequence.
        rounds: in which what is waited for goes first, from one order alone; by default many, and from two.
        most_exposed_s: with more waiting the placing is of no use: where the first one shows that it will have more, it is
            the answer.
    """
    most = SETTINGS.rounds if rounds is None else rounds
    count = len(gaps)
    by_need = sorted(range(count), key=lambda k: (gaps[k].end, k))
    stores = [(k, 0) for k in range(count) if not gaps[k].begins_before]
    loads = [(k, 1) for k in by_need if not gaps[k].ends_behind]
    best: _Placing | None = None
    orders = [[*stores, *loads], [*loads, *stores]]
    for first in orders if rounds is None else orders[:1]:
        placing = _Placing(profile, gaps, budget_bytes, clock, by_need)
        placing.give(first, clock.begins_s)
        if best is None and SETTINGS.hopeless * placing.times.exposed_s > most_exposed_s:
            return placing.placed()
        if placing.times.waits:
            placing = _settled(placing, first, most)
        if best is None or placing.times.exposed_s < best.times.exposed_s:
            best = placing
        if not best.times.waits:
            break
    if best is None:
        raise AssertionError("at least one placing is tried")
    return best.placed()


def _settled(best: _Placing, requests: list[Key], rounds: int) -> _Placing:
    """The best placing where each wait in turn, longest first, has its request moved to the front."""
    tried: set[Key] = set()
    for _ in range(rounds):
        waits = ((w.seconds, w.key) for w in best.times.waits if w.kind is StepKind.WAIT)
        _, squeaks = max((w for w in waits if w[1] not in tried), key=lambda w: w[0], default=(0.0, None))
        if squeaks is None:
            break
        tried.add(squeaks)
        other = [squeaks, *(request for request in requests if request != squeaks)]
        placing = best.again(other)
        if placing.times.exposed_s < best.times.exposed_s:
            best, requests = placing, other
            tried = {squeaks}
    return best


class _Placing:
    """Stays that begin with the fewest bytes and take room under the budget."""

    def __init__(
        self,
        profile: Ints,
        gaps: Sequence[IdleGap],
        budget_bytes: int,
        clock: OffloadClock,
        by_need: Sequence[int],
    ) -> None:
        self.profile, self.gaps, self.budget = profile, gaps, budget_bytes
        self.clock, self.by_need = clock, by_need
        count = len(profile)
        self.gone = [gap.start for gap in gaps]
        self.load = [gap.end if gap.ends_behind else min(gap.end, count - 1) for gap in gaps]
        self.slack: Ints = budget_bytes - profile + away_bytes(gaps, count)
        self.times = Timeline((), (), 0.0, 0.0, IDLE)

    def again(self, requests: Sequence[Key]) -> _Placing:
        """The same stays from the beginning, where operations begin as they do now."""
        other = _Placing(self.profile, self.gaps, self.budget, self.clock, self.by_need)
        other.give(requests, self.begins())
        return other

    def give(self, requests: Sequence[Key], begins: Sequence[float]) -> None:
        """Room for what hides the copies, then what is left; and the times that come of it.

        Args:
            requests: each of each stay, who comes first first.
            begins: when operations begin.
        """
        gone, load = self._leave_hidden(begins), self._return_hidden(begins)
        for k, is_load in requests:
            if is_load:
                self._load_from(k, load[k])
            else:
                self._leave_by(k, gone[k])
        for k, is_load in requests:
            if is_load:
                self._load_from(k, 0)
            else:
                self._leave_by(k, len(begins))
        self.times = self.clock.play(self.places(), [gap.nbytes for gap in self.gaps])

    def places(self) -> tuple[Places, ...]:
        """Of all stays."""
        return tuple(
            (
                *((BETWEEN, BETWEEN) if gap.begins_before else (gap.start, gone)),
                *((BETWEEN, BETWEEN) if gap.ends_behind else (load, gap.end)),
            )
            for gap, gone, load in zip(self.gaps, self.gone, self.load, strict=True)
        )

    def begins(self) -> list[float]:
        """When operations begin, with all waiting."""
        late = np.zeros(len(self.clock.begins_s))
        for (k, is_load), kind, _, seconds in self.times.waits:
            if kind is StepKind.WAIT:
                late[self.gaps[k].end if is_load else self.gone[k] + 1] += seconds
        begins: Floats = self.clock.begins + np.cumsum(late)
        return [*begins.tolist()]

    def placed(self) -> PlacedStays:
        """The outcome."""
        peak = self.budget - int(self.slack.min(initial=self.budget))
        return PlacedStays(tuple(self.gaps), self.places(), self.times, peak)

    def _leave_hidden(self, begins: Sequence[float]) -> list[int]:
        """By stay, the first position whose operation ends when its copy to the host is done."""
        free = 0.0
        found = []
        for gap in self.gaps:
            if gap.begins_before:
                found.append(gap.start)
                continue
            free = max(begins[gap.start + 1], free) + self.clock.out.seconds(gap.nbytes)
            found.append(bisect_left(begins, free) - 1)
        return found

    def _return_hidden(self, begins: Sequence[float]) -> list[int]:
        """By stay, the last position from which its copy is done when it is needed, one copy behind the other."""
        latest = begins[-1]
        found = [0] * len(self.gaps)
        for k in reversed(self.by_need):
            gap = self.gaps[k]
            if gap.ends_behind:
                continue
            latest = min(begins[gap.end], latest) - self.clock.back.seconds(gap.nbytes)
            found[k] = bisect_right(begins, latest) - 1
        return found

    def _leave_by(self, k: int, position: int) -> None:
        """Leave as late as there is room, and not behind a position."""
        gone, nbytes = self.gone[k], self.gaps[k].nbytes
        end = min(position + 1, self.load[k])
        # Most requests are refused at the first position that they want.
        if gone + 1 >= end or self.slack[gone + 1] < nbytes:
            return
        room = self.slack[gone + 1 : end]
        blocked = room < nbytes
        length = int(blocked.argmax())
        if not blocked[length]:
            length = len(room)
        room[:length] -= nbytes
        self.gone[k] = gone + length

    def _load_from(self, k: int, position: int) -> None:
        """Load as early as there is room, and not before a position."""
        load, nbytes = self.load[k], self.gaps[k].nbytes
        earliest = max(position, self.gone[k] + 1)
        if earliest >= load or self.slack[load - 1] < nbytes:
            return
        room = self.slack[earliest:load]
        blocked = room[::-1] < nbytes
        length = int(blocked.argmax())
        if not blocked[length]:
            length = len(room)
        first = len(room) - length
        room[first:] -= nbytes
        self.load[k] = earliest + first
