"""What the search over variants is tuned with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantSettings:
    """Settings of the outer search. `benchmarks/ablation.py variants_settings` measures what half and twice of each costs and wins.

    Attributes:
        floor_share: of the time, what the search that keeps the bits gets.
        free_share: of the limits, what the graph gets with what costs nothing.
        variant_share: of the limits, what the searches for a variant get together. The rest goes to the best once more.
        searches: that a variant with loops takes at most: its own and those of bodies.
        reserve: share of the limits that must be left for one more variant.
        batch: of variants that are planned side by side, none of them in the light of another's plan.
        most_choices: of one variant: those that make most bytes in parts.
        doubt: what an estimate may be too long by, as a share of the step, for each doubling of the parts that were priced
            exactly, and before any were; at most what other estimates were off by that were priced.
    """

    floor_share: float = 0.3
    free_share: float = 0.1
    variant_share: float = 0.16
    searches: int = 4
    reserve: float = 0.25
    batch: int = 3
    most_choices: int = 40
    doubt: float = 0.03


SETTINGS: Final = VariantSettings()
