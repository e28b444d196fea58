"""Gaps: where a storage instance lies idle between two steps that touch it, and could wait on the host."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from neaptide.schedule.evaluate import Evaluator, Ints
from neaptide.schedule.instances import AWAY, TO_END

GapKey: TypeAlias = tuple[int, int, int]
"""Storage, execution that touches it last, and the next one that does, or `TO_END`; `AWAY` for one of another step."""
UsePair: TypeAlias = tuple[int, int, int]
"""Occurrence, execution that touches it, and the next one that does, as in a key."""


@dataclass(frozen=True, slots=True)
class IdleGap:
    """A gap of one storage instance, with at least one step inside.

    What waits on the host between two steps has a gap from the begin of the step and one to its end. Both are filled.

    Attributes:
        storage: id.
        occurrence: of the instance.
        last: execution that touches it last before the gap; `AWAY` where that is one of the step before.
        following: the next one that touches it; `TO_END` where it only has to be there at the end, `AWAY` where not even
            then.
        start: position of `last`; -1 for the begin.
        end: position of `following`; the number of positions for the end.
        nbytes: of the storage.
    """

    storage: int
    occurrence: int
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
    def ends_after(self) -> bool:
        """Whether the storage is on the host when the step ends."""
        return self.following == AWAY

    @property
    def is_between(self) -> bool:
        """Whether it is one of a storage that waits on the host between two steps, and so is always filled."""
        return self.begins_before or self.ends_after


def use_pairs(evaluator: Evaluator, storage: int, *, is_between: bool = False) -> list[UsePair]:
    """Uses of each instance of a storage that follow one another. O(uses x log uses)."""
    found: list[UsePair] = []
    for occurrence, instance in enumerate(evaluator.uses(storage)):
        touched = list(dict.fromkeys(instance.touched_by))
        if is_between and instance.is_owned:
            touched = [AWAY, *dict.fromkeys(instance.needed_by)]
        found += [(occurrence, last, following) for last, following in pairwise(touched)]
        if instance.is_kept:
            found.append((occurrence, touched[-1], AWAY if is_between else TO_END))
    return found


def away_bytes(gaps: Iterable[IdleGap], count: int) -> Ints:
    """Bytes at each position of a sequence that gaps take away where they are filled over their whole length.

    What is away until the end is loaded before the last operation. O(positions + gaps).
    """
    change = [0] * (count + 1)
    for gap in gaps:
        change[gap.start + 1] += gap.nbytes
        change[gap.end if gap.ends_after else min(gap.end, count - 1)] -= gap.nbytes
    return np.cumsum(np.array(change, dtype=np.int64))[:-1]
