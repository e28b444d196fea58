"""A sequence with chosen gaps, carried out: placed exactly, and changed one repetition or gap at a time."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from neaptide.ir.schedule import Offload
from neaptide.outcome import LimitGuard
from neaptide.planner.objective import PlannedSequence
from neaptide.planner.offload.gap_table import GapTable
from neaptide.planner.offload.gaps import GapKey, IdleGap, away_bytes
from neaptide.planner.offload.host import HostSpace
from neaptide.planner.offload.placement import Placement, fill_gaps
from neaptide.schedule.changes import Change
from neaptide.schedule.evaluate import Evaluator, Ints
from neaptide.schedule.offloaded import bytes_on_host, host_bytes_in_bodies, with_offloads
from neaptide.schedule.replays import Replays
from neaptide.schedule.timeline import OffloadClock

# What is known of one order, and of one choice of gaps.
_Filled: TypeAlias = tuple[Ints, frozenset[GapKey], list[IdleGap]]
_Placed: TypeAlias = tuple[Ints, frozenset[GapKey], int, Placement]
_Clock: TypeAlias = tuple[Ints, OffloadClock]


@dataclass(frozen=True, slots=True)
class OffloadPlan:
    """A sequence and what is offloaded meanwhile.

    Attributes:
        planned: the sequence; its peaks and seconds are those with offload.
        host_bytes: most bytes on the host.
        exposed_s: part of the seconds in which operations wait for copies.
    """

    planned: PlannedSequence
    offloads: tuple[Offload, ...] = ()
    host_bytes: int = 0
    exposed_s: float = 0.0

    def rank(self, budget_bytes: int) -> tuple[int, float, int, int]:
        """Lower is better, as for sequences."""
        return self.planned.rank(budget_bytes)


class Carried:
    """A sequence, the gaps that are filled in it, and when their storages are away.

    Attributes:
        chosen: keys of the gaps that are filled.
        gaps: of the sequence that may be filled.
    """

    def __init__(self, evaluator: Evaluator, host: HostSpace, budget_bytes: int) -> None:
        self.evaluator, self.host, self.budget = evaluator, host, budget_bytes
        self.replays = Replays(evaluator)
        self.gaps = GapTable(evaluator, host)
        self.chosen: frozenset[GapKey] = frozenset()
        self._filled: _Filled | None = None
        self._placed: _Placed | None = None
        self._clock: _Clock | None = None

    def clock(self) -> OffloadClock:
        """Of the sequence as it is."""
        order = self.evaluator.order
        if self._clock is None or self._clock[0] is not order:
            self._clock = order, OffloadClock.of(self.evaluator, self.host.out, self.host.back)
        return self._clock[1]

    def filled(self) -> list[IdleGap]:
        """The chosen gaps that the sequence has, and those around each step, as they begin."""
        order, chosen = self.evaluator.order, self.chosen
        if self._filled is None or self._filled[0] is not order or self._filled[1] is not chosen:
            found = [*self.gaps.among(chosen), *self.gaps.between()]
            self._filled = order, chosen, sorted(found, key=IdleGap.as_they_begin)
        return self._filled[2][:]

    def placed(self) -> Placement:
        """The sequence as it is with its chosen gaps filled."""
        order, chosen, known = self.evaluator.order, self.chosen, self._placed
        if known is None or known[0] is not order or known[1:3] != (chosen, self.budget):
            placed = fill_gaps(self.evaluator.bytes, self.filled(), self.budget, self.clock())
            known = self._placed = order, chosen, self.budget, placed
        return known[3]

    def seconds(self) -> float:
        """Of the sequence with what is offloaded."""
        return self.clock().begins_s[-1] + self.placed().times.exposed_s

    def is_within(self) -> bool:
        """Whether device and host have room for it."""
        return self.placed().peak_bytes <= self.budget and self.host_bytes() <= self.host.nbytes

    def host_bytes(self) -> int:
        """Most bytes on the host. O(positions + filled gaps)."""
        placed = self.placed()
        spans = (
            (store, len(self.evaluator.order) if gap.ends_after else back, gap.nbytes)
            for gap, (store, _, _, back) in zip(placed.gaps, placed.places, strict=True)
        )
        return int(bytes_on_host(spans, host_bytes_in_bodies(self.evaluator)).max(initial=0))

    def lowest(self) -> Ints:
        """Bytes at each position with what is chosen away over the whole of its gaps."""
        profile = self.evaluator.bytes
        return profile - away_bytes(self.filled(), len(profile))

    def fill_until_within(self, guard: LimitGuard, without: GapKey | None = None) -> bool:
        """Fill more gaps at the highest positions, those with most time first, until the budget is met; whether it is."""
        low = self.lowest()
        high = np.flatnonzero(low > self.budget)
        if not len(high):
            return True
        beside = self.chosen if without is None else self.chosen | {without}
        rows, start, end, nbytes = self.gaps.across(int(high[0]), int(high[-1]), beside)
        begins = self.clock().begins
        longest = np.lexsort((-nbytes, begins[start + 1] - begins[end]))
        rows, start, nbytes = rows[longest], start[longest], nbytes[longest]
        stop = np.minimum(end[longest], len(low) - 1)
        is_free = np.ones(len(rows), dtype=bool)
        taken: list[int] = []
        highest = int(low.argmax())
        while int(low[highest]) > self.budget and not guard.exhausted():
            across = is_free & (start < highest) & (highest < stop)
            best = int(across.argmax()) if len(across) else -1
            if best < 0 or not across[best]:
                break
            low[start[best] + 1 : stop[best]] -= nbytes[best]
            is_free[best] = False
            taken.append(int(rows[best]))
            highest = int(low.argmax())
        self.chosen |= self.gaps.keys(taken)
        return int(low[highest]) <= self.budget

    def drop_needless(self) -> None:
        """Keep on the device what fits there, with least time for its copies first. O(filled gaps x positions in them)."""
        slack = self.budget - self.lowest()
        begins = self.clock().begins_s
        gaps = [gap for gap in self.filled() if not gap.is_between]
        gaps.sort(key=lambda gap: (begins[gap.end] - begins[gap.start + 1]) / gap.nbytes)
        for gap in gaps:
            room = slack[gap.start + 1 : self._last(gap)]
            if int(room.min(initial=gap.nbytes)) >= gap.nbytes:
                room -= gap.nbytes
                self.chosen -= {gap.key}

    def change(
        self,
        change: Change | None,
        guard: LimitGuard,
        *,
        made: Collection[int] = (),
        without: GapKey | None = None,
    ) -> bool:
        """Make a change of the repetitions, if any, and of the gaps; keep it where that is faster and fits. Whether it is.

        O(size of the change + filled gaps x positions in them + positions + gaps x log gaps).

        Args:
            made: storages whose new gaps are filled first where there is no room for them, before any others.
            without: a gap that is no longer filled.
        """
        evaluator, seconds = self.evaluator, self.seconds()
        before = self.chosen, self._filled, self._placed, self._clock
        own = {gap.key for storage in made for gap in self.gaps.of(storage)}
        if change is not None:
            evaluator.apply(change)
        # A sequence that takes as long without any waiting is not faster.
        if self.clock().begins_s[-1] < seconds:
            self.chosen = left = self._still_there(self.chosen - {without})
            is_full = int(self.lowest().max(initial=0)) > self.budget
            if is_full:
                self.chosen |= {gap.key for storage in made for gap in self.gaps.of(storage)} - own
            is_faster = self._is_faster(seconds)
            if not is_faster and is_full:
                self.chosen = left
                if self.fill_until_within(guard, without):
                    self.drop_needless()
                    is_faster = self._is_faster(seconds)
            if is_faster:
                evaluator.forget_undo()
                return True
        if change is not None:
            evaluator.undo()
        self.chosen, self._filled, self._placed, self._clock = before
        return False

    def _is_faster(self, seconds: float) -> bool:
        """Whether the sequence with what is chosen fits, and takes less than some seconds."""
        if int(self.lowest().max(initial=0)) > self.budget:
            return False
        return self.is_within() and self.seconds() < seconds

    def _still_there(self, chosen: Iterable[GapKey]) -> frozenset[GapKey]:
        """Gaps after a change of the sequence: of those that it cut, what begins or ends as they did."""
        found: set[GapKey] = set()
        for key in chosen:
            storage, last, following = key
            if self.gaps.has(key):
                found.add(key)
            else:
                gaps = [gap.key for gap in self.gaps.of(storage)]
                found.update(other for other in gaps if other[1] == last or other[2] == following)
        return frozenset(found)

    def plan(self, strategy: str) -> OffloadPlan:
        """As an answer, with its bytes."""
        return plan_of_placed(self.evaluator, self.placed(), strategy)

    def _last(self, gap: IdleGap) -> int:
        """One past the last position at which a storage can be away."""
        return gap.end if gap.ends_after else min(gap.end, len(self.evaluator.order) - 1)


def plan_of_placed(evaluator: Evaluator, placed: Placement, strategy: str) -> OffloadPlan:
    """A sequence with gaps that were filled in it, with its bytes; by a strategy of some name. O(size + gaps)."""
    offloads, exposed = placed.offloads(), placed.times.exposed_s
    found, seconds = with_offloads(evaluator, offloads), evaluator.seconds + exposed
    planned = PlannedSequence(
        evaluator.sequence(), strategy, found.peak_without_workspace, found.peak, seconds
    )
    return OffloadPlan(planned, offloads, found.peak_host_bytes, exposed)
