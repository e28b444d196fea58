"""Placement rules by name: each makes one layout of a problem, without search. Those of others are peers."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Protocol

import numpy as np

from neaptide.layout.heuristics.placement import Fit, place
from neaptide.layout.problem import Ints, LayoutProblem
from neaptide.layout.result import Layout
from neaptide.outcome import LimitGuard


def order_by(problem: LayoutProblem, *columns: Ints) -> list[int]:
    """Buffers by sort keys, ascending, the first decides. O(n log n).

    Ties are broken by start, longer life, larger size and alignment, and by the place in the problem last: buffers
    without gaps that still tie are the same, so the arena of a rule does not depend on how buffers are numbered.
    """
    ties = (problem.starts, -problem.ends, -problem.sizes, -problem.alignments)
    order: list[int] = np.lexsort((*reversed(ties), *reversed(columns))).tolist()
    return order


def by_size(problem: LayoutProblem) -> list[int]:
    """The largest first, those that live longest among equals."""
    return order_by(problem, -problem.sizes, problem.starts - problem.ends)


def by_life(problem: LayoutProblem) -> list[int]:
    """Those that live longest first, the largest among equals."""
    return order_by(problem, problem.starts - problem.ends, -problem.sizes)


def program_order(problem: LayoutProblem, *columns: Ints) -> list[int]:
    """Buffers by sort keys, then by start, then as they are listed: as planners do that walk over a program."""
    order: list[int] = np.lexsort((problem.starts, *reversed(columns))).tolist()
    return order


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
