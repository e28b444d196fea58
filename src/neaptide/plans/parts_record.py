"""What a search over variants looked at, as a plan keeps it: for the reader, nothing is decided by it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import msgspec

_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


@dataclass(frozen=True, slots=True)
class TriedVariant:
    """A variant of the captured graph that was planned, or priced.

    Attributes:
        label: what was done to the graph.
        peak_bytes: with workspace.
        seconds: of a step.
    """

    label: str
    peak_bytes: _Count
    seconds: Annotated[float, msgspec.Meta(ge=0.0)]


@dataclass(frozen=True, slots=True)
class PartsRecord:
    """What is known of running regions of a program in parts.

    Attributes:
        regions: those that may run in parts, in words, those that make most bytes in parts first.
        tried: variants that were planned, in that order.
        lower_bound_bytes: no plan with parts along the axes of these regions has a lower peak with workspace.
        refused: what promised something and could not be done, each with the reason.
        regions_left_out: number of regions that may run in parts as well and were not looked at: those that make the fewest
            bytes in parts.
        most_parts: of the plan along one axis; parts of parts multiply. 0 where nothing runs in parts.
        most_parts_lower_bound_bytes: no plan with at most `most_parts` parts along each of these axes has a lower peak with
            workspace. 0 where that tells nothing: nothing runs in parts, or the plan has parts along another axis too.
    """

    regions: tuple[str, ...]
    tried: tuple[TriedVariant, ...]
    lower_bound_bytes: _Count
    refused: tuple[str, ...] = ()
    regions_left_out: _Count = 0
    most_parts: _Count = 0
    most_parts_lower_bound_bytes: _Count = 0
