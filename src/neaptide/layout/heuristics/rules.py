"""Placement rules by name: each makes one layout of a problem, without search. Those of others are peers."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Protocol

from neaptide.layout.heuristics.orders import by_size
from neaptide.layout.heuristics.placement import Fit, place
from neaptide.layout.problem import LayoutProblem
from neaptide.layout.result import Layout
from neaptide.outcome import LimitGuard


class Rule(Protocol):
    """Makes one layout of a problem; a guard may stop it in the middle, with `RuleStopped`."""

    def __call__(self, problem: LayoutProblem, guard: LimitGuard | None = None) -> Layout: ...


def place_by_size(problem: LayoutProblem, guard: LimitGuard | None = None) -> Layout:
    """The largest first, each at its lowest address. O(n^2), vectorised.

    The arena does not depend on how buffers are numbered, as long as they have no gaps.
    """
    return place(problem, by_size(problem), Fit.FIRST, guard)


RULES: Final[Mapping[str, Rule]] = MappingProxyType({"size_first": place_by_size})
"""Those of the default. Beside the searches that follow it, no other rule decides an answer (`ablation.py layout`)."""
