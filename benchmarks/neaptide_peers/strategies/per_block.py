"""Checkpoint every block: hold what enters each block, recompute the rest of it in its backward.

What `torch.utils.checkpoint` around every layer does (Chen et al. 2016 with segments of one block), on blocks found
in the graph.
"""

from __future__ import annotations

import threading
from typing import Final

from neaptide.outcome import LimitGuard, Limits, Outcome
from neaptide.planner.objective import PlannedSequence, PlanningProblem
from neaptide.planner.recompute.chain.plans import chain_of, hand_back
from neaptide_peers.strategies.segments import segments_table
from neaptide_peers.strategies.tables import conclude

NAME: Final = "per_block"
# About one block a layer, rather than one an operation.
_MOST: Final = (16, 64)


def solve(
    problem: PlanningProblem, limits: Limits, interrupt: threading.Event | None = None
) -> Outcome[PlannedSequence]:
    """The start with every block but the last recomputed. O(recomputations x steps)."""
    guard = LimitGuard(limits, interrupt)
    best: Outcome[PlannedSequence] | None = None
    for most in _MOST:
        chain = chain_of(problem, most)
        if isinstance(chain, str):
            return hand_back(problem, guard, NAME, chain)
        table = segments_table(chain, range(len(chain.blocks)))
        detail = f"{len(chain.blocks)} blocks"
        found = conclude(problem, guard, NAME, chain.forward, [table], detail)
        budget = problem.budget_bytes
        if best is None or found.require().rank(budget) < best.require().rank(budget):
            best = found
    assert best is not None
    return best
