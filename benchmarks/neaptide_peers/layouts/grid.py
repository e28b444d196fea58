"""A grid of placement rules: every order of buffers with both fits that use holes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Final

from neaptide.layout.placement import Fit, Rule, order_by, place
from neaptide.layout.problem import LayoutProblem
from neaptide.layout.result import Layout
from neaptide.outcome import LimitGuard
from neaptide_peers.layouts.orders import ORDERS, BufferKeys


def place_ordered(problem: LayoutProblem, guard: LimitGuard | None = None, *, order: str, fit: Fit) -> Layout:
    """Buffers in one of the `ORDERS`, by name. O(n^2), vectorised.

    The arena does not depend on how buffers are numbered, as long as they have no gaps.
    """
    return place(problem, order_by(problem, *ORDERS[order](BufferKeys.of(problem))), fit, guard)


GRID: Final[Mapping[str, tuple[str, Fit]]] = MappingProxyType(
    {f"{order}_{fit}": (order, fit) for order in ORDERS for fit in (Fit.FIRST, Fit.BEST)}
)
"""Order and fit by name: `size_first`, `size_best` and so on."""
GRID_RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {name: partial(place_ordered, order=order, fit=fit) for name, (order, fit) in GRID.items()}
)
"""The rules of the grid by name."""
