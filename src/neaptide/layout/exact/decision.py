"""What an exact search says about a capacity."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """What a decision about a capacity came to. Running out of budget proves nothing."""

    FITS = "fits"
    REFUTED = "refuted"
    OUT_OF_BUDGET = "out of budget"


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether everything fits below a capacity.

    Attributes:
        verdict: the answer.
        offsets: in the solver's unit, when it fits.
        nodes: of the search tree.
    """

    verdict: Verdict
    offsets: tuple[int, ...] | None
    nodes: int
