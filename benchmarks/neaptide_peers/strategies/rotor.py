"""The optimal persistent plan of a chain of unequal blocks (Beaumont et al. 2020, rotor), several options a block.

The program rounds sizes up and adds worst cases, so it is solved for more than the budget, and the largest nominal
budget whose plan really fits counts. `neaptide.planner.recompute.chain.program` has the recurrence.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Final

from neaptide.outcome import LimitGuard, Limits, Outcome
from neaptide.planner.objective import PlannedSequence, PlanningProblem
from neaptide.planner.recompute.chain.plans import NominalBudgets, chain_of, hand_back, start_of

NAME: Final = "rotor"
_MOST_BLOCKS: Final = (8, 16, 48)


def solve(
    problem: PlanningProblem, limits: Limits, interrupt: threading.Event | None = None
) -> Outcome[PlannedSequence]:
    """The best plan of the program that fits, over three ways of cutting. See `ChainProgram` for the cost."""
    guard = LimitGuard(limits, interrupt)
    start = start_of(problem, NAME)
    best = start
    detail = ""
    for most in _MOST_BLOCKS:
        chain = chain_of(problem, most)
        if isinstance(chain, str):
            return hand_back(problem, guard, NAME, chain)
        nominal = NominalBudgets(problem, chain, guard, NAME)
        for found in fitting(nominal):
            if found.rank(problem.budget_bytes) < best.rank(problem.budget_bytes):
                best = found
                detail = f"{len(chain.blocks)} blocks, {chain.distinct} of them distinct"
    return guard.finish(best, best=best.seconds, detail=detail)


def fitting(nominal: NominalBudgets) -> Iterator[PlannedSequence]:
    """Plans for shares that approach the largest one whose plan fits, by bisection over the slots."""
    slot = nominal.program.slot_bytes / max(nominal.problem.budget_bytes, 1)
    low, high = 0, nominal.program.slots + 1
    while high - low > 1:
        middle = (low + high) // 2
        found = nominal.plan((middle + 0.5) * slot)
        if found is not None:
            yield found
        if found is None or found.peak_with_workspace_bytes <= nominal.problem.budget_bytes:
            low = middle
        else:
            high = middle
