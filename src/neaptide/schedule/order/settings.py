"""How far each method of an ordering search goes before the next one has its turn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class OrderSettings:
    """Limits of single methods. Those of the whole search are `Limits`.

    `benchmarks/ablation.py order_settings` measures what half and twice of each number cost and win.

    Attributes:
        quick_region_states: downsets of one region in the first reduction; bounds prove most of what is wider
            (`benchmarks/order_structures.py`).
        region_states: the same in the second reduction: a tenth of a second or two.
        quick_ops: problems with more operations are ordered by a list before they are reduced.
        first_states: of the first turn of an exact search; each turn has half as many again as the last.
        most_states: of an exact search: about a gigabyte.
        beam_widths: of the beams, one after another.
        window_widths: operations of the windows around a peak, one after another.
        window_states: of the exact search of a window, in each direction.
        window_beam_width: of the beam where that search comes to no end.
        bitset_ops: of the largest problem for methods on bitsets: closures take 2 x 110 MB there.
    """

    quick_region_states: int = 300
    region_states: int = 20_000
    quick_ops: int = 5_000
    first_states: int = 256
    most_states: int = 1_000_000
    beam_widths: tuple[int, ...] = (1, 8)
    window_widths: tuple[int, ...] = (16, 32, 64, 128, 256)
    window_states: int = 2_000
    window_beam_width: int = 4
    bitset_ops: int = 30_000

    @property
    def large_region_states(self) -> int:
        """Downsets of one region where an exact search has not ended soon: a second or two."""
        return 10 * self.region_states

    @property
    def early_states(self) -> int:
        """States of an exact search, in each direction, before wide regions are reduced."""
        return self.most_states // 100


DEFAULT: Final = OrderSettings()
