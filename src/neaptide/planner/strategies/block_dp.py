"""Blocks solved once, a chain program over them, then repair and put back operation by operation.

The program sees whole blocks and what lies between them, and it can have a block made again twice (a cut inside a cut),
which no set of held storages at one step expresses. Its plans for several nominal budgets are starts for the search
by marginal prices, which sees every step of the whole graph: a plan that is too high is repaired, one with room
holds more.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Final

from neaptide.outcome import LimitGuard, Limits, Outcome
from neaptide.planner.objective import PlannedSequence, PlanningProblem
from neaptide.planner.recompute.chain_search import chain_of, hand_back, start_of
from neaptide.planner.recompute.nominal import NominalBudgets
from neaptide.planner.recompute.retention import with_moves
from neaptide.planner.strategies.greedy_recompute import GreedyRecompute

NAME: Final = "block_dp"
_MOST_BLOCKS: Final = (8, 16)
# Nominal budgets, as shares of the wanted one.
_SHARES: Final = (1.0, 0.97, 0.94, 1.06, 1.1, 1.3, 1.45)


def solve(
    problem: PlanningProblem, limits: Limits, interrupt: threading.Event | None = None
) -> Outcome[PlannedSequence]:
    """The best repaired plan of the program; the peak is never higher than that of the start."""
    guard = LimitGuard(limits, interrupt)
    start = start_of(problem, NAME)
    best = start
    details = []
    tried: set[tuple[int, ...]] = set()
    for most in _MOST_BLOCKS:
        chain = chain_of(problem, most)
        if isinstance(chain, str):
            if best is start:
                return hand_back(problem, guard, NAME, chain)
            break
        details.append(f"{chain.distinct} of {len(chain.blocks)}")
        nominal = NominalBudgets(problem, chain, guard, NAME)
        for share in _SHARES:
            plan = nominal.plan(share)
            if plan is None or plan.sequence in tried:
                continue
            tried.add(plan.sequence)
            found = _polished(problem, guard, plan)
            if found.rank(problem.budget_bytes) < best.rank(problem.budget_bytes):
                best = found
    if best is not start:
        best = with_moves(problem, best)
    detail = f"distinct blocks: {', '.join(dict.fromkeys(details))}"
    return guard.finish(best, best=best.seconds, detail=detail)


def _polished(problem: PlanningProblem, guard: LimitGuard, plan: PlannedSequence) -> PlannedSequence:
    """A plan repaired where it is above the budget, holding more where there is room."""
    search = GreedyRecompute(replace(problem, start=plan.sequence), guard)
    search.descend()
    search.put_back()
    return PlannedSequence.evaluate(problem.step, search.evaluator.sequence(), NAME)
