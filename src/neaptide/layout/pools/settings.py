"""What filling several memory spaces is tuned with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSettings:
    """Settings of the ways to fill spaces.

    `benchmarks/ablation.py pools_settings` measures what half and twice of each number cost and win.

    Attributes:
        repacked: buffers for which a space is laid out anew to put them back.
        searches: in each space: what they find is seldom more than a few buffers.
        nodes: of each of them, beyond one for each buffer: tenths of a second.
        most_entries: of the matrix of the program that bounds the cost; beyond that every buffer counts with its cheapest
            space.
    """

    repacked: int = 8
    searches: int = 3
    nodes: int = 2_000
    most_entries: int = 2_000_000


SETTINGS: Final = PoolSettings()
