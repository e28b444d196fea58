"""A layout for other sizes: buffers in the order of addresses that they, or others like them, had before."""

from __future__ import annotations

from neaptide.layout.heuristics.placement import Fit, place
from neaptide.layout.heuristics.rules import order_by
from neaptide.layout.problem import Ints, LayoutProblem
from neaptide.layout.result import Layout
from neaptide.outcome import LimitGuard


def follow(problem: LayoutProblem, addresses: Ints, guard: LimitGuard | None = None) -> Layout:
    """Place buffers by ascending addresses, each at the lowest place that is free. O(n^2), vectorised.

    Where the addresses are those of a layout for the same lifetimes, each buffer comes to lie at most as high as the
    largest sum of aligned sizes of buffers that lie on each other below it. So the arena is no larger than before where no
    size is, at most `k` times as large where no aligned size is more than `k` times what it was, and never larger for
    smaller sizes than that sum for larger ones.

    Raises:
        RuleStopped: the guard said stop.
    """
    return place(problem, order_by(problem, addresses), Fit.FIRST, guard)
