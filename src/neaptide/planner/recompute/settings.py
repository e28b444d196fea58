"""The numbers that more than one of the searches for recomputations reads; what one module alone reads stands there.

`benchmarks/ablation.py recompute_settings` measures what half and twice of each cost and win.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class RecomputeSettings:
    """Shares of time are of the baseline's seconds. Tries are changes of a sequence that are evaluated."""

    proved: float = (
        1e-8  # a plan this close to its bound is the fastest: sums of seconds err by about as much
    )
    close_enough: float = 1e-4  # a plan this close to its bound is not searched further: times repeat to less
    hardly_more: float = 1e-3  # a bound or a peak that is better by less than this share is hardly so
    # Another order counts where it lowers the peak to this share: proofs and plans of two orders cannot be compared.
    lower_order: float = 0.99
    polish_tries: int = 15_000  # of one search that descends from a whole order, or improves a plan
    parts: int = 4  # a search among several may use at most one of so many parts of the work that is left
    misses: int = 4  # so many attempts in a row that have not helped are enough
    worthwhile: float = 0.002  # storages below this share of the bytes above the budget wait for larger ones
    # Larger programs are not asked at several steps together; those of half as many nodes are cut into blocks once.
    most_nodes: int = 3000
    apart: int = 6  # steps this close to one that has been looked at say the same
    reach: float = (
        1.75  # largest budget that a chain program is asked for, in wanted ones: it charges worst cases
    )
    nodes_per_try: int = 8  # of a closure that is repeated; each try is one unit of work

    @property
    def contradiction(self) -> float:
        """A bound that is above a plan by more is wrong, and is not shown."""
        return 100 * self.proved

    @property
    def near(self) -> float:
        """A plan this close to its bound needs no search on the whole graph beside the one by blocks."""
        return 5 * self.close_enough

    @property
    def far(self) -> float:
        """A plan further from its bound is worth the costly searches: blocks and certificates."""
        return 30 * self.close_enough

    @property
    def floor_progress(self) -> float:
        """A descent that lowers the peak by less than this share has hardly done so; floors are proved as closely."""
        return 10 * self.hardly_more


SETTINGS: Final = RecomputeSettings()
