"""The pace of the processor while programs are measured, beside the pace that predictions are told at.

Costs are kept at the pace of the first measurement on a machine (`cost.call_clock`), and plans are decided by them. Beside a
measurement a prediction means something only at the pace of that measurement.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Final

from neaptide.cost.call_clock import CallClock

_WORTH_TELLING: Final = 0.05
"""Paces that differ by less are told as one: so much differs from one second to the next."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Two paces, each in seconds of the same piece of work.

    Attributes:
        kept_s: that costs are kept at.
        seen_s: that was seen.
    """

    kept_s: float
    seen_s: float

    @property
    def factor(self) -> float:
        """How many times as long the processor takes as at the pace that costs are kept at."""
        # A clock that is too coarse to time the yardstick tells no pace.
        return self.seen_s / self.kept_s if self.kept_s and self.seen_s else 1.0

    @property
    def is_worth_telling(self) -> bool:
        """Whether the two differ so much that a reader should know."""
        return abs(self.factor - 1) > _WORTH_TELLING


class PaceReadings:
    """Readings of the pace between other things that are timed."""

    def __init__(self, clock: CallClock) -> None:
        self._clock = clock
        self._seen_s: list[float] = []

    def read(self) -> None:
        """See what the pace is now."""
        self._seen_s.append(self._clock.pace_now_s())

    def pace(self) -> Pace | None:
        """The median of the readings, as that of the costs is one; None without any."""
        return Pace(self._clock.pace_s, median(self._seen_s)) if self._seen_s else None
