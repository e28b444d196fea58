"""What plans took when they were run to choose among them, as a plan keeps it: for the reader."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, Literal

import msgspec

_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Number = Annotated[float, msgspec.Meta(ge=0.0)]

Reason = Literal["least_peak", "fastest", "none_within"]
LEAST_PEAK: Final = "least_peak"
FASTEST: Final = "fastest"
NONE_WITHIN: Final = "none_within"


@dataclass(frozen=True, slots=True)
class TrialRow:
    """One of the plans that were run.

    Attributes:
        planned_for: the predicted limit of its search, in words.
        predicted_peak_bytes: with workspace.
        predicted_ratio: predicted seconds over those predicted for program order.
        measured_ratio: median over the rounds of its time over that of what it ran beside.
        measured_ratio_low: lower end of the interval of that median, of 95 %.
        measured_ratio_high: upper end.
        measured_seconds: median of its own.
    """

    planned_for: str
    predicted_peak_bytes: _Count
    predicted_ratio: _Number
    measured_ratio: _Number
    measured_ratio_low: _Number
    measured_ratio_high: _Number
    measured_seconds: _Number


@dataclass(frozen=True, slots=True)
class TrialsRecord:
    """A choice among plans by what they took.

    Attributes:
        beside: what ran in the same rounds, whose time the ratios are of.
        clock: `processor` for the time of the processor, `wall` for elapsed time.
        rounds: timed steps of each.
        rows: the plans that were run.
        chosen: index of the one that was taken.
        reason: `least_peak` of those that measured within the limit of time; `none_within`, so the fastest; `fastest` of
            those that are predicted to fit, for a limit of bytes.
        longest_ratio: the limit that measured ratios were held against; None for another limit.
        longest_seconds: the limit that measured seconds were held against; None for another limit.
    """

    beside: str
    clock: Literal["processor", "wall"]
    rounds: _Count
    rows: tuple[TrialRow, ...]
    chosen: _Count
    reason: Reason
    longest_ratio: _Number | None = None
    longest_seconds: _Number | None = None
