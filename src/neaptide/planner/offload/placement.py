"""Placement: when the storages of chosen gaps leave and return, within a budget and with little waiting.

A copy to the host begins right after the last use. To wait for it later never takes longer, and a load that begins
earlier never ends later; both cost bytes. So each offloaded interval begins with the fewest bytes: away over its whole
gap. Then the room under the budget is given away. First each gets what hides its copies: the wait moves back until its
copy is done, the load moves forward until it is done in time, the one that is needed first first. What room is left then
goes to earlier loads and later waits, so that a copy that is slower than predicted does less harm. Copies one way go
first, or where something is waited for those the other way.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from neaptide.ir.schedule import BETWEEN, Offload
from neaptide.planner.offload.gaps import IdleGap, away_bytes
from neaptide.schedule.copy_streams import Timeline
from neaptide.schedule.evaluate import Ints
from neaptide.schedule.timeline import OffloadClock, Places


@dataclass(frozen=True, slots=True)
class Placement:
    """Where offloaded intervals begin and end.

    Attributes:
        gaps: that they fill, in the order in which they begin.
        times: of their copies.
        peak_bytes: on the device, workspace included.
    """

    gaps: tuple[IdleGap, ...]
    places: tuple[Places, ...]
    times: Timeline
    peak_bytes: int

    def offloads(self) -> tuple[Offload, ...]:
        """The same by position, in the order in which they are stored, then by storage."""
        found = [
            Offload(gap.storage, gap.occurrence, *places)
            for gap, places in zip(self.gaps, self.places, strict=True)
        ]
        return tuple(
            sorted(found, key=lambda offload: (offload.store_after, offload.storage, offload.occurrence))
        )


def fill_gaps(profile: Ints, gaps: Sequence[IdleGap], budget_bytes: int, clock: OffloadClock) -> Placement:
    """Fill gaps within a budget; above it only where it cannot be met by filling all of them.

    O(gaps x (positions in them + log gaps)).

    Args:
        profile: bytes at each position with all storages on the device.
        gaps: as they begin.
        clock: of the same sequence.
    """
    begins, free, latest = clock.begins_s, 0.0, clock.begins_s[-1]
    # For each copy its gap, whether it is the one back, where it is hidden, and where it is safest.
    stores: list[tuple[int, bool, int, int]] = []
    loads: list[tuple[int, bool, int, int]] = []
    for k, gap in enumerate(gaps):
        if not gap.begins_before:
            free = max(begins[gap.start + 1], free) + clock.out.seconds(gap.nbytes)
            stores.append((k, False, bisect_left(begins, free) - 1, len(profile)))
    for k in sorted(range(len(gaps)), key=lambda k: (-gaps[k].end, -k)):
        if not gaps[k].ends_after:
            latest = min(begins[gaps[k].end], latest) - clock.back.seconds(gaps[k].nbytes)
            loads.insert(0, (k, True, bisect_right(begins, latest) - 1, 0))
    found: list[Placement] = []
    for requests in ([*stores, *loads], [*loads, *stores]):
        room = _Room(budget_bytes - profile + away_bytes(gaps, len(profile)), gaps)
        for k, is_load, hidden, _ in requests:
            (room.load_from if is_load else room.leave_by)(k, hidden)
        for k, is_load, _, safest in requests:
            (room.load_from if is_load else room.leave_by)(k, safest)
        places = room.places()
        times = clock.play(places, [gap.nbytes for gap in gaps])
        peak = budget_bytes - int(room.slack.min(initial=budget_bytes))
        found.append(Placement(tuple(gaps), places, times, peak))
        if not times.waits:
            break
    return min(found, key=lambda one: one.times.exposed_s)


class _Room:
    """What is left under the budget at each position, and where each offloaded interval leaves and loads by now."""

    def __init__(self, slack: Ints, gaps: Sequence[IdleGap]) -> None:
        self.slack, self.gaps = slack, gaps
        self.gone = [gap.start for gap in gaps]
        self.load = [gap.end if gap.ends_after else min(gap.end, len(slack) - 1) for gap in gaps]

    def places(self) -> tuple[Places, ...]:
        """Of all intervals."""
        return tuple(
            (
                *((BETWEEN, BETWEEN) if gap.begins_before else (gap.start, gone)),
                *((BETWEEN, BETWEEN) if gap.ends_after else (load, gap.end)),
            )
            for gap, gone, load in zip(self.gaps, self.gone, self.load, strict=True)
        )

    def leave_by(self, k: int, position: int) -> None:
        """Leave as late as there is room, and not after a position."""
        gone, nbytes = self.gone[k], self.gaps[k].nbytes
        end = min(position + 1, self.load[k])
        # Most requests are refused at the first position that they want.
        if gone + 1 >= end or self.slack[gone + 1] < nbytes:
            return
        room = self.slack[gone + 1 : end]
        blocked = room < nbytes
        length = int(blocked.argmax()) if blocked.any() else len(room)
        room[:length] -= nbytes
        self.gone[k] = gone + length

    def load_from(self, k: int, position: int) -> None:
        """Load as early as there is room, and not before a position."""
        load, nbytes = self.load[k], self.gaps[k].nbytes
        earliest = max(position, self.gone[k] + 1)
        if earliest >= load or self.slack[load - 1] < nbytes:
            return
        room = self.slack[earliest:load]
        blocked = room[::-1] < nbytes
        length = int(blocked.argmax()) if blocked.any() else len(room)
        room[len(room) - length :] -= nbytes
        self.load[k] = load - length
