"""Gaps: where a storage instance lies idle between two steps that touch it, and could wait on the host."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from neaptide.schedule.evaluate import Evaluator, Ints
from neaptide.schedule.transfers import TO_END

GapKey: TypeAlias = tuple[int, int, int]
"""Storage, execution that touches it last, and the next one that does, or `TO_END`."""
UsePair: TypeAlias = tuple[int, int, int, int]
"""Occurrence, execution that creates it or `OWNED`, execution that touches it, and the next one that does, or `TO_END`."""


@dataclass(frozen=True, slots=True)
class IdleGap:
    """A gap of one storage instance, with at least one step inside.

    Attributes:
        storage: id.
        occurrence: of the instance.
        made: execution that creates the instance, or `OWNED`.
        last: execution that touches it last before the gap.
        following: the next one that touches it; `TO_END` where it only has to be there at the end.
        start: position of `last`.
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


def idle_gaps(evaluator: Evaluator, stuck: Collection[int] = ()) -> list[IdleGap]:
    """All gaps of a sequence, in the order in which they begin, then by storage. O(uses x log uses).

    Args:
        evaluator: of a sequence; transfers that it has are left out of account.
        stuck: storages that stay on the device.
    """
    problem = evaluator.problem
    found = [
        gap
        for storage in range(len(problem.creator))
        if problem.moved_bytes(storage) and storage not in stuck
        for gap in storage_gaps(evaluator, storage)
    ]
    found.sort(key=IdleGap.as_they_begin)
    return found


def storage_gaps(evaluator: Evaluator, storage: int) -> list[IdleGap]:
    """The gaps of one storage: pairs of its uses between which there is a step. O(uses x log uses)."""
    places, nbytes, count = evaluator.places, evaluator.problem.moved_bytes(storage), len(evaluator.order)
    found = []
    for occurrence, made, last, following in use_pairs(evaluator, storage):
        start, end = places[last], count if following == TO_END else places[following]
        if end - start > least_length(is_to_end=following == TO_END):
            found.append(IdleGap(storage, occurrence, made, last, following, start, end, nbytes))
    return found


def least_length(*, is_to_end: bool) -> int:
    """Positions that the ends of a gap are more than apart."""
    # Its load begins before an operation, so a gap to the end has one at least for that.
    return 2 if is_to_end else 1


def use_pairs(evaluator: Evaluator, storage: int) -> list[UsePair]:
    """Uses of each instance of a storage that follow one another. O(uses x log uses)."""
    found: list[UsePair] = []
    for occurrence, instance in enumerate(evaluator.uses(storage)):
        touched = list(dict.fromkeys(instance.touched_by))
        found += [(occurrence, instance.made, last, following) for last, following in pairwise(touched)]
        if instance.is_kept:
            found.append((occurrence, instance.made, touched[-1], TO_END))
    return found


def away_bytes(gaps: Iterable[IdleGap], count: int) -> Ints:
    """Bytes at each position of a sequence that gaps take away where they are filled over their whole length.

    What is away until the end is loaded before the last operation. O(positions + gaps).
    """
    change = [0] * (count + 1)
    for gap in gaps:
        change[gap.start + 1] += gap.nbytes
        change[min(gap.end, count - 1)] -= gap.nbytes
    return np.cumsum(np.array(change, dtype=np.int64))[:-1]
