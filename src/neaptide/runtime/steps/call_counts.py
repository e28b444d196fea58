"""What happened to the calls of a planned step so far, and a warning where each of them is planned anew."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field

from neaptide.frontends.guards.signature import Signature
from neaptide.runtime.steps.beside_eager import Verified

_MOST_REASONS = 100  # distinct mismatches that are counted one by one
_OTHER_REASONS = "others"
MOST_IN_A_ROW = 3  # a first call, one of another shape and one more are no pattern
_LONGEST = 160  # characters of a difference that the warning shows


@dataclass
class CallCounts:
    """What happened to the calls so far.

    Attributes:
        mismatches: for each distinct mismatch, in words, how often it was met; beyond the first hundred they are
            counted together as `others`.
        ranges: dims that vary in the plan made last, with their ranges; none where it is for one shape.
    """

    planned: int = 0  # calls that ran a planned program
    eager: int = 0  # calls that ran the user's function as it is
    replans: int = 0  # captures and plans made after the first
    mismatches: dict[str, int] = field(default_factory=dict)
    ranges: tuple[str, ...] = ()
    verified: Verified = field(default_factory=Verified)  # what calls that were verified beside eager found

    def note_mismatch(self, reason: str) -> bool:
        """Count a mismatch under its reason, or under `others` when there are many; whether it is the first of it."""
        known = reason in self.mismatches or len(self.mismatches) < _MOST_REASONS
        key = reason if known else _OTHER_REASONS
        self.mismatches[key] = self.mismatches.get(key, 0) + 1
        return self.mismatches[key] == 1

    def describe(self) -> str:
        """One line for a log."""
        met = "; ".join(f"{reason} ({count}x)" for reason, count in self.mismatches.items()) or "none"
        told = f"{self.planned} planned, {self.eager} eager, {self.replans} replanned; mismatches: {met}"
        ranges = f"planned for {', '.join(self.ranges)}" if self.ranges else ""
        return "; ".join(filter(None, (told, ranges, self.verified.describe())))


class ReplanWarning(UserWarning):
    """Call after call is planned anew."""


class ReplansInARow:
    """Counts the calls that were planned anew one after the other."""

    def __init__(self) -> None:
        self._count = 0
        self._has_warned = False

    def end(self) -> None:
        """Note a call that ran under a plan that there was."""
        self._count = 0

    def add(self, now: Signature, before: Signature) -> None:
        """Note a call that is planned anew; warns at the fourth in a row, once."""
        self._count += 1
        if self._count <= MOST_IN_A_ROW or self._has_warned:
            return
        self._has_warned = True
        differences = now.differences(before)
        warnings.warn(
            f"{self._count} calls in a row were planned anew; last: {_in_short(differences)}; "
            f'{_advice(now, before)}, or let such calls run eagerly with on_mismatch="eager"',
            ReplanWarning,
            stacklevel=4,
        )


def _in_short(differences: Sequence[str]) -> str:
    if not differences:
        return "other gradients or optimizer state exist"
    first = differences[0]
    first = first if len(first) <= _LONGEST else f"{first[:_LONGEST]}..."
    return first if len(differences) == 1 else f"{first} (and {len(differences) - 1} more)"


def _advice(now: Signature, before: Signature) -> str:
    """What to do about what differs first."""
    if now.batch != before.batch:
        shapes = [
            name
            for (name, a), (_, b) in zip(now.batch, before.batch, strict=False)
            if a != b and _is_shape(a)
        ]
        if shapes or len(now.batch) != len(before.batch):
            return "say which dims vary (dynamic=...), or pad the batch to few shapes"
        return "pass what changes as a tensor, or leave it out of what the tensors are computed from"
    if now.state != before.state:
        return "keep the shapes and flags of parameters, gradients and buffers as they are between calls"
    if now.scalars != before.scalars or now.objects != before.objects:
        return "keep what changes in a tensor, or use it after the last tensor operation of the step only"
    if now.hyper_parameters != before.hyper_parameters:
        return "keep the hyper-parameter in a tensor, or change it rarely"
    return "leave code, hooks and modes as they are between calls"


def _is_shape(fact: object) -> bool:
    return hasattr(fact, "shape")
