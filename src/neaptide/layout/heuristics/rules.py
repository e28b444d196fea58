"""Placement rules by name: each makes one layout of a problem, without search. Those of others are peers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Final, Protocol

from neaptide.layout.heuristics.orders import ORDERS, BufferKeys, order_by
from neaptide.layout.heuristics.placement import Fit, place
from neaptide.layout.problem import LayoutProblem
from neaptide.layout.result import Layout
from neaptide.outcome import LimitGuard


class Rule(Protocol):
    """Makes one layout of a problem; a guard may stop it in the middle, with `RuleStopped`."""

    def __call__(self, problem: LayoutProblem, guard: LimitGuard | None = None) -> Layout: ...


def place_ordered(problem: LayoutProblem, guard: LimitGuard | None = None, *, order: str, fit: Fit) -> Layout:
    """Buffers in one of the `ORDERS`, by name. O(n^2), vectorised.

    The arena does not depend on how buffers are numbered, as long as they have no gaps.
    """
    keys = BufferKeys.of(problem)
    return place(problem, order_by(keys, ORDERS[order](keys)), fit, guard)


GRID: Final[Mapping[str, tuple[str, Fit]]] = MappingProxyType(
    {f"{order}_{fit}": (order, fit) for order in ORDERS for fit in (Fit.FIRST, Fit.BEST)}
)
"""Every order with both fits that use holes."""

RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {name: partial(place_ordered, order=order, fit=fit) for name, (order, fit) in GRID.items()}
)
"""The rules of the grid by name: `size_first`, `size_best` and so on."""
