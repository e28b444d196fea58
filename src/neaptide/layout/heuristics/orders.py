"""Orders in which placement rules take buffers. Those that only peers use are beside them."""

from __future__ import annotations

import numpy as np

from neaptide.layout.problem import Ints, LayoutProblem


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
