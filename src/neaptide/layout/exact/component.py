"""What is known about one time component of a problem, and the exact search that learns more."""

from __future__ import annotations

from functools import cached_property
from typing import Final

import numpy as np

from neaptide.layout.bounds import arena_lower_bound
from neaptide.layout.exact.restarts import decide
from neaptide.layout.exact.rigid import RigidSearch
from neaptide.layout.exact.sections import part_sections
from neaptide.layout.exact.skyline import dive
from neaptide.layout.exact.strip import Strip, Verdict, is_plain
from neaptide.layout.placement import place_by_size
from neaptide.layout.problem import LayoutProblem
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
        self._is_plain = is_plain(problem)
        self._seed = 0
        # Whole rectangles at the largest alignment: their layouts are layouts of the problem.
        self._strip: Strip | None = None
        if not (problem.fixed >= 0).any():
            alignment = int(problem.alignments.max())
            self._strip = Strip.of(problem.starts, problem.ends, problem.sizes, alignment)

    def dive(self, capacity_bytes: int, guard: LimitGuard) -> None:
        """Look for a layout within a capacity by dives, unless offsets are fixed."""
        if self.arena_bytes <= capacity_bytes or self._strip is None:
            return
        found = dive(self._strip, capacity_bytes, guard, seed=guard.limits.seed)
        if found.offsets is not None:
            self._take(found.offsets, self._strip.unit)

    def decide(self, capacity_bytes: int, guard: LimitGuard, *, max_nodes: int | None) -> tuple[Verdict, int]:
        """Whether it fits a capacity, and the nodes used. A layout or a bound that this finds is kept.

        Fixed offsets, mixed alignments and gaps go to the rigid search, all else to the valley search.
        """
        if self.arena_bytes <= capacity_bytes:
            return Verdict.FITS, 0
        if self.lower_bytes > capacity_bytes:
            return Verdict.REFUTED, 0
        if self._is_too_dense:
            return Verdict.OUT_OF_BUDGET, 0
        self._seed += 1
        seed = guard.limits.seed + self._seed
        if self._is_plain and self._strip is not None:
            strip = self._strip
            found = decide(strip, strip.limits(capacity_bytes), guard, seed=seed, max_nodes=max_nodes)
            unit, above = strip.unit, strip.arena_above(capacity_bytes)
        else:
            rigid = self._rigid
            found = rigid.decide(capacity_bytes, guard, seed=seed, max_nodes=max_nodes)
            unit, above = 1, (capacity_bytes // rigid.grid + 1) * rigid.grid
        if found.offsets is not None:
            self._take(found.offsets, unit)
        elif found.verdict is Verdict.REFUTED:
            self.lower_bytes = above
        return found.verdict, found.nodes

    @cached_property
    def _rigid(self) -> RigidSearch:
        return RigidSearch(self.problem)

    @cached_property
    def _is_too_dense(self) -> bool:
        """Whether the tables of the exact search would be too large."""
        parts = part_sections(self.problem)
        live = parts.sections.totals(np.ones(len(parts.lows), dtype=np.int64))
        return bool((live if self._is_plain else live * live).sum() > _MOST_ENTRIES)

    def _take(self, offsets: tuple[int, ...], unit: int) -> None:
        """Keep a layout, in units, if it is better."""
        layout = Layout.of(self.problem, tuple(offset * unit for offset in offsets))
        if layout.arena_bytes < self.arena_bytes:
            self.offsets, self.arena_bytes = layout.offsets, layout.arena_bytes
