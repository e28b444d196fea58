"""What is known about one time component of a problem, and the exact search that learns more."""

from __future__ import annotations

from typing import Final

import numpy as np

from neaptide.layout.bounds import arena_lower_bound
from neaptide.layout.exact.restarts import decide
from neaptide.layout.exact.rigid import RigidSearch
from neaptide.layout.exact.sections import part_sections
from neaptide.layout.exact.skyline import dive
from neaptide.layout.exact.strip import Strip, Verdict, is_plain
from neaptide.layout.placement import place_by_size
from neaptide.layout.problem import Ints, LayoutProblem
from neaptide.layout.result import Layout
from neaptide.outcome import LimitGuard

_MOST_ENTRIES: Final = 5_000_000
"""Of the tables that an exact search begins with, which are seconds to make: sections of all lifetimes together, and for the
rigid search pairs that are live together, at all sections."""


class ComponentSearch:
    """The best layout and the best bound of one component; both only get better."""

    def __init__(self, problem: LayoutProblem, known: Layout | None = None) -> None:
        self.problem = problem
        layout = known or place_by_size(problem)
        self.offsets = layout.offsets
        self.arena_bytes = layout.arena_bytes
        self.lower_bytes = arena_lower_bound(problem)
        self._strip: Strip | None = None
        self._rigid: RigidSearch | None = None
        self._seed = 0
        if is_plain(problem):
            alignment = int(problem.alignments[0])
            self._strip = Strip.of(problem.starts, problem.ends, problem.sizes, alignment)
        else:
            self._relaxed = _relax(problem)

    def dive(self, capacity_bytes: int, guard: LimitGuard) -> None:
        """Look for a layout within a capacity by dives; of the whole rectangles at one alignment, where need be."""
        strip = self._strip or self._relaxed
        if self.arena_bytes <= capacity_bytes or strip is None:
            return
        found = dive(strip, capacity_bytes, guard, seed=guard.limits.seed)
        if found.offsets is not None and found.arena_bytes is not None:
            self._take(tuple(offset * strip.unit for offset in found.offsets))

    def decide(self, capacity_bytes: int, guard: LimitGuard, *, max_nodes: int | None) -> tuple[Verdict, int]:
        """Whether it fits a capacity, and the nodes used. A layout or a bound that this finds is kept.

        Fixed offsets, mixed alignments and gaps go to the rigid search, all else to the valley search.
        """
        if self.arena_bytes <= capacity_bytes:
            return Verdict.FITS, 0
        if self.lower_bytes > capacity_bytes:
            return Verdict.REFUTED, 0
        if self._strip is None:
            if self._rigid is None:
                if self._is_too_dense():
                    return Verdict.OUT_OF_BUDGET, 0
                self._rigid = RigidSearch(self.problem)
            rigid = self._rigid
            self._seed += 1
            found = rigid.decide(
                capacity_bytes,
                guard,
                seed=guard.limits.seed + self._seed,
                max_nodes=max_nodes,
            )
            if found.offsets is not None:
                self._take(found.offsets)
            elif found.verdict is Verdict.REFUTED:
                self.lower_bytes = (capacity_bytes // rigid.grid + 1) * rigid.grid
            return found.verdict, found.nodes
        return self._decide_plain(self._strip, capacity_bytes, guard, max_nodes)

    def _decide_plain(
        self, strip: Strip, capacity: int, guard: LimitGuard, max_nodes: int | None
    ) -> tuple[Verdict, int]:
        limits = strip.limits(capacity)
        idle = idle_rectangles(strip, limits)
        taken = set(idle)
        kept = [index for index in range(len(strip)) if index not in taken]
        offsets = [0] * len(strip)
        nodes = 0
        if kept:
            core, core_limits = strip.choose(kept), [limits[index] for index in kept]
            covered = sum(last - first for first, last in zip(core.firsts, core.lasts, strict=True))
            if covered > _MOST_ENTRIES:
                return Verdict.OUT_OF_BUDGET, 0
            self._seed += 1
            seed = guard.limits.seed + self._seed
            found = decide(core, core_limits, guard, seed=seed, max_nodes=max_nodes)
            nodes = found.nodes
            if found.verdict is Verdict.REFUTED:
                self.lower_bytes = strip.arena_above(capacity)
            if found.offsets is None:
                return found.verdict, nodes
            for index, offset in zip(kept, found.offsets, strict=True):
                offsets[index] = offset
        place_idle(strip, offsets, idle)
        self._take(tuple(offset * strip.unit for offset in offsets))
        return Verdict.FITS, nodes

    def _is_too_dense(self) -> bool:
        """Whether the rigid search, which holds every meeting of two parts at every section, cannot begin."""
        parts = part_sections(self.problem)
        live = parts.sections.totals(np.ones(len(parts.lows), dtype=np.int64))
        return bool((live * live).sum() > _MOST_ENTRIES)

    def _take(self, offsets: tuple[int, ...]) -> None:
        """Keep a layout if it is better."""
        sizes = self.problem.sizes.tolist()
        arena = max(offset + size for offset, size in zip(offsets, sizes, strict=True))
        if arena < self.arena_bytes:
            self.offsets, self.arena_bytes = offsets, arena


def _relax(problem: LayoutProblem) -> Strip | None:
    """Whole rectangles at the largest alignment: its layouts are layouts of the problem. None with fixed offsets."""
    if (problem.fixed >= 0).any():
        return None
    return Strip.of(problem.starts, problem.ends, problem.sizes, int(problem.alignments.max()))


def idle_rectangles(strip: Strip, limits: list[int]) -> list[int]:
    """Rectangles that fit below their limits wherever the others lie: place them last, in reverse of this order.

    With k others that meet it, of total size T, at least one of the k + 1 spaces between them below a limit L holds
    ceil((L - T) / (k + 1)) units. So size s fits if T + (k + 1)(s - 1) < L. Taking some away may free others, so this
    goes on until nothing changes. O(n log n) for each round.
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
    """Fill in the lowest offsets of idle rectangles, last one first. O(n log n) each."""
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
