"""What the search over variants is tuned with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantSettings:
    """Settings of the outer search, of what it ranks variants by, and of searches like it.

    `benchmarks/ablation.py variants_settings` measures what half and twice of each number cost and win.

    Attributes:
        first_share: of the time for a program: what the graph as it is gets, and what the variant that all others begin with
            does.
        search_share: of the time: what each search for a variant and its bodies gets. What is left goes to the best once more.
        searches: that a variant with loops takes at most: its own and those of bodies.
        priced_part: of the time that is left, what the best variant gets before joins are looked at again.
        whole_part: of the time that is left, what the best variant without loops gets beside the best with loops.
        worthwhile: a region in parts is looked at further where the peak falls to this share of it at most.
        rounds: of choices, one on top of the other.
        choices: of which one variant is planned: in the first round, in later ones, and behind the beginning that promises
            less.
        planned: variants in all, likewise.
        begun: share of the time that must be left for one more, likewise.
        ladder: numbers of parts, each about one and a half times the one before.
        all_of_body: of the bytes that a body makes, those of a region that is all of it.
        most_choices: of one variant: those that make most bytes in parts.
        doubt: what an estimate may be too long by, as a share of the step, for each doubling of the parts that were priced
            exactly, and before any were; at most what other estimates were off by that were priced.
        least_share: of a peak, what recomputation leaves at the least, whatever the time.
        lowest_share: of the time for a front, what the search for the lowest peak gets; the rest is shared by the limits of time
            in between.
    """

    first_share: float = 0.1
    search_share: float = 0.04
    searches: int = 4
    priced_part: float = 0.4
    whole_part: float = 0.5
    worthwhile: float = 0.95
    rounds: int = 6
    choices: tuple[int, int, int] = (3, 2, 1)
    planned: tuple[int, int, int] = (5, 3, 2)
    begun: tuple[float, float, float] = (0.4, 0.25, 0.2)
    ladder: tuple[int, ...] = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
    all_of_body: float = 0.95
    most_choices: int = 40
    doubt: float = 0.03
    least_share: float = 0.1
    lowest_share: float = 0.3


SETTINGS: Final = VariantSettings()
