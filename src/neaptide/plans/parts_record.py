"""What a search over variants looked at, as a plan keeps it: for the reader, nothing is decided by it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import msgspec


@dataclass(frozen=True, slots=True)
class TriedVariant:
    """A variant of the captured graph that was planned, or priced.

    Attributes:
        label: what was done to the graph.
        peak_bytes: with workspace.
        seconds: of a step.
    """

    label: str
    peak_bytes: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
    seconds: Annotated[float, msgspec.Meta(ge=0.0)]


@dataclass(frozen=True, slots=True)
class PartsRecord:
    """What is known of running regions of a program in parts.

    Attributes:
        regions: those that may run in parts, in words, those that make most bytes in parts first.
        tried: variants that were planned, in that order.
        lower_bound_bytes: no plan with parts along the axes of these regions has a lower peak with workspace.
        refused: what promised something and could not be done, each with the reason.
    """

    regions: tuple[str, ...]
    tried: tuple[TriedVariant, ...]
    lower_bound_bytes: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
    refused: tuple[str, ...] = ()
