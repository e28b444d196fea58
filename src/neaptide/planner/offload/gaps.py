"""Gaps: where a storage instance lies idle between two steps that touch it, and could wait on the host."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.transfers import TO_END, InstanceUses

GapKey: TypeAlias = tuple[int, int, int]
"""Storage, execution that touches it last, and the next one that does, or `TO_END`."""


@dataclass(frozen=True, slots=True)
class IdleGap:
    """A gap of one storage instance, with at least one step inside.

    Attributes:
        storage: id.
        occurrence: of the instance.
        made: execution that creates the instance.
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
        for storage, creator in enumerate(problem.creator)
        if creator >= 0 and problem.storage_bytes[storage] and storage not in stuck
        for gap in storage_gaps(evaluator, storage)
    ]
    found.sort(key=IdleGap.as_they_begin)
    return found


def storage_gaps(evaluator: Evaluator, storage: int) -> list[IdleGap]:
    """The gaps of one storage that the program creates. O(uses x log uses)."""
    return [
        gap
        for occurrence, instance in enumerate(evaluator.uses(storage))
        for gap in _gaps_of(evaluator, storage, occurrence, instance)
    ]


def _gaps_of(evaluator: Evaluator, storage: int, occurrence: int, instance: InstanceUses) -> list[IdleGap]:
    places, nbytes = evaluator.places, evaluator.problem.storage_bytes[storage]
    touched = list(dict.fromkeys(instance.touched_by))
    pairs = [(last, following, places[following]) for last, following in pairwise(touched)]
    if instance.is_kept:
        # Its load begins before an operation, so a gap to the end has one at least for that.
        pairs.append((touched[-1], TO_END, len(evaluator.order)))
    return [
        IdleGap(storage, occurrence, touched[0], last, following, places[last], end, nbytes)
        for last, following, end in pairs
        if end - places[last] > (2 if following == TO_END else 1)
    ]
