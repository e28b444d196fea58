"""Rectangles that fit wherever the others lie: they leave the search and are placed last.

With k others that meet it, of total size T, at least one of the k + 1 spaces between them below a limit L holds
ceil((L - T) / (k + 1)) units. So size s fits if T + (k + 1)(s - 1) < L (layout.md, section 2.7). Taking some away may
free others, so this goes on until nothing changes.
"""

from __future__ import annotations

import numpy as np

from neaptide.layout.exact.strip import Strip
from neaptide.layout.problem import Ints


def idle_rectangles(strip: Strip, limits: list[int]) -> list[int]:
    """Rectangles that fit below their limits in whatever order the others are laid out. O(n log n) for each round.

    Place them in reverse of this order.
    """
    firsts, lasts = np.array(strip.firsts, dtype=np.int64), np.array(strip.lasts, dtype=np.int64)
    sizes, tops = np.array(strip.sizes, dtype=np.int64), np.array(limits, dtype=np.int64)
    kept = np.arange(len(strip))
    removed: list[int] = []
    while len(kept):
        count = _met(firsts[kept], lasts[kept], np.ones(len(kept), dtype=np.int64)) - 1
        total = _met(firsts[kept], lasts[kept], sizes[kept]) - sizes[kept]
        # Divided, not multiplied: (k + 1)(s - 1) can pass 2^63.
        room = tops[kept] - total
        fits = (room > 0) & (-(-room // (count + 1)) >= sizes[kept])
        if not fits.any():
            break
        removed += kept[fits].tolist()
        kept = kept[~fits]
    return removed


def _met(firsts: Ints, lasts: Ints, weights: Ints) -> Ints:
    """By rectangle, the weight of all that meet it, itself included."""
    by_first, by_last = np.argsort(firsts, kind="stable"), np.argsort(lasts, kind="stable")
    begun = np.concatenate(([0], np.cumsum(weights[by_first])))
    ended = np.concatenate(([0], np.cumsum(weights[by_last])))
    before_end = begun[np.searchsorted(firsts[by_first], lasts, side="left")]
    over = ended[np.searchsorted(lasts[by_last], firsts, side="right")]
    met: Ints = before_end - over
    return met


def place_idle(strip: Strip, offsets: list[int], idle: list[int]) -> None:
    """Give idle rectangles their lowest offsets, last one first. O(n log n) each.

    Args:
        strip: all rectangles.
        offsets: of the others; those of the idle ones are filled in.
        idle: as `idle_rectangles` returns them.
    """
    firsts, lasts = np.array(strip.firsts, dtype=np.int64), np.array(strip.lasts, dtype=np.int64)
    sizes, lows = np.array(strip.sizes, dtype=np.int64), np.array(offsets, dtype=np.int64)
    is_placed = np.ones(len(strip), dtype=bool)
    is_placed[idle] = False
    for index in reversed(idle):
        meets = is_placed & (firsts < lasts[index]) & (lasts > firsts[index])
        low = lows[meets]
        order = np.argsort(low, kind="stable")
        low = low[order]
        top = np.maximum.accumulate((lows[meets] + sizes[meets])[order]) if len(low) else low
        below = np.concatenate(([0], top))
        spaces = np.concatenate((low, [np.iinfo(np.int64).max])) - below
        offset = int(below[int(np.argmax(spaces >= sizes[index]))])
        lows[index] = offsets[index] = offset
        is_placed[index] = True
