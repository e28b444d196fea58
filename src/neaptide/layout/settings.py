"""How far each method of a layout search goes before the next one has its turn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class LayoutSettings:
    """Numbers that steer single methods. Limits of the whole search are `Limits`.

    `benchmarks/ablation.py layout_settings` measures what half and twice of each number cost and win.

    Attributes:
        first_nodes: of the first exact decisions; each later round has twice as many as the last. A layout of a moved order
            gets as many, and one that is asked for without limits in another's course ten times as many.
        first_decisions: at the bound alone, each with a seed of its own: how long a search takes has a heavy tail.
        narrowing_parts: looking for a smaller arena between a bound and the best ends at the bound over this.
        dives: passes without going back.
        dive_noise: keys of later dives are multiplied by 1 +- this.
        dive_boost: what was to blame for an excess is placed earlier: its key is multiplied by this.
        run_noise: keys of a run of the valley search are multiplied by 1 +- this.
        run_extra_nodes: of a run of the first round, beyond one for each rectangle.
        run_growth: of those, from round to round.
        run_fading: what counts of earlier failures in every other round.
        most_entries: of the tables that an exact search begins with: sections of all lifetimes together, and for the rigid
            search pairs that are live together, at all sections; seconds to begin one.
    """

    first_nodes: int = 20_000
    first_decisions: int = 3
    narrowing_parts: int = 1_000
    dives: int = 12
    dive_noise: float = 0.1
    dive_boost: float = 1.5
    run_noise: float = 0.3
    run_extra_nodes: int = 100
    run_growth: float = 1.2
    run_fading: float = 0.7
    most_entries: int = 5_000_000

    @property
    def most_nodes(self) -> int:
        """Of all exact decisions, where no limit says otherwise: about a minute. As many refuted states are remembered."""
        return 50 * self.first_nodes


DEFAULT: Final = LayoutSettings()
