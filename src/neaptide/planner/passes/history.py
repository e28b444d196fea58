"""What each pass of a sequence did to the footprint, and what it enabled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from neaptide.planner.passes.archive import Archive, Entry


@dataclass(frozen=True, slots=True)
class Enabled:
    """A later step that an earlier one made possible, or made save more.

    Attributes:
        step: of the sequence, from 0.
        saved_before_bytes: by the same pass where the earlier one had not run; None where it found no place there.
    """

    step: int
    saved_before_bytes: int | None


@dataclass(frozen=True, slots=True)
class PassStep:
    """One pass of a sequence.

    Attributes:
        name: of the pass.
        before_bytes: footprint by the best order before it.
        after_bytes: and after it.
        enabled: later steps that would not be possible, or would save less, without it.
    """

    name: str
    before_bytes: int
    after_bytes: int
    enabled: tuple[Enabled, ...] = ()

    @property
    def saved_bytes(self) -> int:
        """Below zero where it raised the footprint."""
        return self.before_bytes - self.after_bytes

    def described(self, steps: Sequence[PassStep]) -> str:
        """In one line, within its sequence."""
        change = -self.saved_bytes
        what = f"changed nothing at {self.after_bytes} bytes" if not change else f"{change:+} bytes"
        parts = [f"{self.name}: {what}"]
        for one in self.enabled:
            later = steps[one.step]
            before = one.saved_before_bytes
            why = "had no place before" if before is None else f"would have made {-before:+} bytes before"
            parts.append(f"enabled {later.name} ({-later.saved_bytes:+} bytes; it {why})")
        return ", ".join(parts)


def steps_to(archive: Archive[Any], number: int) -> tuple[PassStep, ...]:
    """The passes from the start to an entry. Only what the search has measured is said: nothing is measured again."""
    path = archive.path(number)
    return tuple(
        PassStep(after.by, before.nbytes, after.nbytes, _enabled(archive, path, place))
        for place, (before, after) in enumerate(pairwise(path))
    )


def _enabled(archive: Archive[Any], path: Sequence[Entry[Any]], place: int) -> tuple[Enabled, ...]:
    """Later steps that had no place before a step, or saved less there as far as it was measured.

    A step that two earlier ones have to prepare counts for the last of them, after which it finds its place.
    """
    before, after = path[place], path[place + 1]
    found = []
    for later in range(place + 1, len(path) - 1):
        name = path[later + 1].by
        saved = path[later].nbytes - path[later + 1].nbytes
        if saved <= 0 or name not in after.measured.facts:
            continue
        if name not in before.measured.facts:
            found.append(Enabled(later, None))
            continue
        reached = before.tried.get(name)
        if reached is not None:
            instead = before.nbytes - archive.entries[reached].nbytes
            if instead < saved and after.nbytes >= before.nbytes:
                found.append(Enabled(later, instead))
    return tuple(found)
