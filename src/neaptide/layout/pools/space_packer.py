"""Layouts of buffers in one of several memory spaces, remembered, since ways to choose buffers ask for the same ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from neaptide.layout.best_layout import best_layout
from neaptide.layout.bounds import live_bytes
from neaptide.layout.pools.arenas import Packing, pack_quickly
from neaptide.layout.pools.settings import SETTINGS
from neaptide.layout.pools.spaces import PooledProblem
from neaptide.layout.problem import LayoutProblem
from neaptide.outcome import LimitGuard, Limits

_METHODS: Final = ("size_first", "dive", "valley")


class SpacePacker:
    """Lays sets of buffers out in the spaces of a problem: by placement rules, and a few times by search.

    Args:
        pooled: buffers and spaces.
        guard: charged with every buffer that is laid out and every node of a search.
    """

    def __init__(self, pooled: PooledProblem, guard: LimitGuard) -> None:
        self._pooled = pooled
        self.guard = guard
        self._known: dict[tuple[int, tuple[int, ...]], Packing | None] = {}
        self._searches: Counter[int] = Counter()

    def pack(self, space: int, members: Iterable[int]) -> Packing | None:
        """A layout of some buffers, in ascending order, within a space; None proves nothing."""
        key = space, tuple(sorted(members))
        if key not in self._known:
            self._known[key] = self._find(*key)
        return self._known[key]

    def _find(self, space: int, members: tuple[int, ...]) -> Packing | None:
        self.guard.exhausted(len(members))
        problem = self._pooled.part(space, members)
        capacity = self._pooled.spaces[space].capacity_bytes
        most = self._pooled.spaces[space].max_arena_bytes
        packing = pack_quickly(problem, capacity, most)
        limits = [limit for limit in (capacity, most) if limit is not None]
        return packing or (self._search(space, problem, min(limits)) if limits else None)

    def _search(self, space: int, problem: LayoutProblem, limit: int) -> Packing | None:
        """One arena by an exact search that ends early."""
        if self._searches[space] == SETTINGS.searches or live_bytes(problem) > limit:
            return None
        self._searches[space] += 1
        most = len(problem) + SETTINGS.nodes
        if self.guard.limits.work is not None:
            most = min(most, max(0, self.guard.limits.work - self.guard.work))
        limits = Limits(self.guard.remaining_s(), most, self.guard.limits.seed)
        found = best_layout(problem, limits, capacity_bytes=limit, methods=_METHODS)
        self.guard.exhausted(min(found.work, most))
        layout = None if found.value is None else found.value.layout
        return None if layout is None else Packing.of(layout)
