"""Gaps: where a storage instance lies idle between two steps that touch it, and could wait on the host."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from neaptide.schedule.evaluate import Evaluator, Ints
from neaptide.schedule.instances import AWAY, TO_END

GapKey: TypeAlias = tuple[int, int, int]
"""Storage, execution that touches it last, and the next one that does, or `TO_END`; `AWAY` for one of another step."""
UsePair: TypeAlias = tuple[int, int, int, int]
"""Occurrence, execution that creates it or `OWNED`, execution that touches it, and the next one that does, as in a key."""


@dataclass(frozen=True, slots=True)
class IdleGap:
    """A gap of one storage instance, with at least one step inside.

    What waits on the host between two steps has a gap from the begin of the step and one to its end. Both are filled.

    Attributes:
        storage: id.
        occurrence: of the instance.
        made: execution that creates the instance, or `OWNED`.
        last: execution that touches it last before the gap; `AWAY` where that is one of the step before.
        following: the next one that touches it; `TO_END` where it only has to be there at the end, `AWAY` where not even
            then.
        start: position of `last`; -1 for the begin.
        end: position of `following`; the number of positions for the end.
        nbytes: of the storage.
    """

    storage: int
    occurrence: int
    made: int
    last: int
    following: int
    start: int
    end: int
    nbytes: int

    def as_they_begin(self) -> tuple[int, int, int]:
        """The order in which their copies to the host are issued, as a key to sort by."""
        return self.start, self.storage, self.occurrence

    @property
    def key(self) -> GapKey:
        return self.storage, self.last, self.following

    @property
    def begins_before(self) -> bool:
        """Whether the storage is on the host when the step begins."""
        return self.last == AWAY

    @property
    def ends_behind(self) -> bool:
        """Whether the storage is on the host when the step ends."""
        return self.following == AWAY

    @property
    def is_between(self) -> bool:
        """Whether it is one of a storage that waits on the host between two steps, and so is always filled."""
        return self.begins_before or self.ends_behind


def idle_gaps(
    evaluator: Evaluator, stuck: Collection[int] = (), between: Collection[int] = ()
) -> list[IdleGap]:
    """All gaps of a sequence, in the order in which they begin, then by storage. O(uses x log uses).

    Args:
        evaluator: of a sequence; transfers that it has are left out of account.
        stuck: storages that stay on the device.
        between: storages that are on the host between two steps.
    """
    problem = evaluator.problem
    found = [
        gap
        for storage in range(len(problem.creator))
        if problem.moved_bytes(storage) and storage not in stuck
        for gap in storage_gaps(evaluator, storage, is_between=storage in between)
    ]
    found.sort(key=IdleGap.as_they_begin)
    return found


def storage_gaps(evaluator: Evaluator, storage: int, *, is_between: bool = False) -> list[IdleGap]:
    """The gaps of one storage: pairs of its uses between which there is a step. O(uses x log uses).

    Those around a step are there whatever lies inside: the storage is away between two steps in any case.
    """
    places, nbytes, count = evaluator.places, evaluator.problem.moved_bytes(storage), len(evaluator.order)
    found = []
    for occurrence, made, last, following in use_pairs(evaluator, storage, is_between=is_between):
        start = -1 if last == AWAY else places[last]
        end = count if following in {TO_END, AWAY} else places[following]
        is_around = AWAY in {last, following}
        if is_around or end - start > least_length(is_to_end=following == TO_END):
            found.append(IdleGap(storage, occurrence, made, last, following, start, end, nbytes))
    return found


def least_length(*, is_to_end: bool) -> int:
    """Positions that the ends of a gap are more than apart."""
    # Its load begins before an operation, so a gap to the end has one at least for that.
    return 2 if is_to_end else 1


def use_pairs(evaluator: Evaluator, storage: int, *, is_between: bool = False) -> list[UsePair]:
    """Uses of each instance of a storage that follow one another. O(uses x log uses).

    Args:
        evaluator: of a sequence.
        storage: which.
        is_between: it is on the host between two steps.
    """
    found: list[UsePair] = []
    for occurrence, instance in enumerate(evaluator.uses(storage)):
        touched = list(dict.fromkeys(instance.touched_by))
        if is_between and instance.is_owned:
            touched = [AWAY, *dict.fromkeys(instance.needed_by)]
        found += [(occurrence, instance.made, last, following) for last, following in pairwise(touched)]
        if instance.is_kept:
            found.append((occurrence, instance.made, touched[-1], AWAY if is_between else TO_END))
    return found


def away_bytes(gaps: Iterable[IdleGap], count: int) -> Ints:
    """Bytes at each position of a sequence that gaps take away where they are filled over their whole length.

    What is away until the end is loaded before the last operation. O(positions + gaps).
    """
    change = [0] * (count + 1)
    for gap in gaps:
        change[gap.start + 1] += gap.nbytes
        change[gap.end if gap.ends_behind else min(gap.end, count - 1)] -= gap.nbytes
    return np.cumsum(np.array(change, dtype=np.int64))[:-1]
