"""What the choice of stays on the host is tuned with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadSettings:
    """Settings of the search, of its linear program and of its bound.

    `benchmarks/ablation.py offload_settings` measures what half and twice of each number cost and win.

    Attributes:
        uses: how busy the engines may be, in each round: copies of an answer stand in each other's way more than its
            rows know.
        most_gaps: that the program chooses from: the largest times how long they last.
        cells: stretches that time is cut into; the program has a row for each run of them and each engine.
        slacks: how many cells later than it could each copy is done, in the ways of being away that a gap begins with.
        new_items: repetitions that join the program in a round.
        tries: units of work of a linear program: an exchange is one.
        most_swaps: exchanges of recomputations and stays that are tried in a program of 2,000 nodes.
        misses: exchanges in a row that bring nothing end a round of them.
        rounds: of placing stays: waiting shifts all that follows, and with it what a copy hides behind.
        bound_steps: positions above the budget that the bound looks at, beside the highest.
        bound_windows: of time for each engine there, on either side.
    """

    uses: tuple[float, ...] = (1.0, 0.9, 0.8, 0.65)
    most_gaps: int = 400
    cells: int = 20
    slacks: tuple[tuple[int, int], ...] = ((0, 0), (1, 1), (3, 3))
    new_items: int = 60
    tries: int = 50
    most_swaps: int = 300
    misses: int = 40
    rounds: int = 24
    bound_steps: int = 4
    bound_windows: int = 12


SETTINGS: Final = OffloadSettings()
