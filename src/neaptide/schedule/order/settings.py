"""How far each method of an ordering search goes before the next one has its turn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class OrderSettings:
    """Limits of single methods. Those of the whole search are `Limits`.

    `benchmarks/ablation.py order_settings` measures what half and twice of each number cost and win.

    Attributes:
        first_states: of a search that is tried first: downsets of one region in the first reduction, and of the first turn
            of an exact search, each turn of which has half as many again as the last. Bounds prove most of what is wider
            (`benchmarks/order_structures.py`).
        window_states: of the exact search of a window, in each direction.
        window_widths: operations of the windows around a peak, one after another.
        beam_widths: of the beams, one after another.
        bitset_ops: of the largest problem for methods on bitsets: closures take 2 x 110 MB there.
    """

    first_states: int = 300
    window_states: int = 2_000
    window_widths: tuple[int, ...] = (16, 32, 64, 128, 256)
    beam_widths: tuple[int, ...] = (1, 8)
    bitset_ops: int = 30_000

    @property
    def window_beam_width(self) -> int:
        """Of the beam where the search of a window comes to no end: narrower than that of the whole."""
        return max(max(self.beam_widths) // 2, 1)

    @property
    def region_states(self) -> int:
        """Downsets of one region in the second reduction: a tenth of a second or two."""
        return 10 * self.window_states

    @property
    def large_region_states(self) -> int:
        """The same where an exact search has not ended soon: a second or two."""
        return 10 * self.region_states

    @property
    def most_states(self) -> int:
        """Of an exact search: about a gigabyte."""
        return 500 * self.window_states

    @property
    def early_states(self) -> int:
        """States of an exact search, in each direction, before wide regions are reduced."""
        return self.most_states // 100

    @property
    def quick_ops(self) -> int:
        """Problems with more operations are ordered by a list before they are reduced."""
        return self.bitset_ops // 6


DEFAULT: Final = OrderSettings()
