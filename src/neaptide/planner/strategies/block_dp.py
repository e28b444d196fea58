"""Blocks solved once, a chain program over them, then repair and put back operation by operation.

The program sees whole blocks and what lies between them, and it can have a block recomputed twice (a cut inside a cut),
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
from neaptide.planner.recompute.chain.plans import NominalBudgets, chain_of, hand_back, start_of
from neaptide.planner.strategies.greedy_recompute import GreedyRecompute, descent_guard

NAME: Final = "block_dp"
_BUDGETS: Final = (1.1, 1.45, 1.06, 1.3, 1.0)  # for which it is asked, in terms of the wanted one


def solve(
    problem: PlanningProblem, limits: Limits, interrupt: threading.Event | None = None
) -> Outcome[PlannedSequence]:
    """The best repaired plan of the program; the peak is never higher than that of the start."""
    guard = LimitGuard(limits, interrupt)
    start = start_of(problem, NAME)
    # More and smaller blocks of a large program: solving one takes more than linear time.
    chain = chain_of(problem, min(max(16, problem.step.node_count // 125), 24))
    if isinstance(chain, str):
        return hand_back(problem, guard, NAME, chain)
    best = start
    nominal = NominalBudgets(problem, chain, guard, NAME)
    tried: set[tuple[int, ...]] = set()
    for share in _BUDGETS:
        plan = nominal.plan(share)
        if plan is None or plan.sequence in tried:
            continue
        tried.add(plan.sequence)
        # Repaired where it is above the budget; where there is room, repetitions are taken back.
        inner = descent_guard(guard, problem.step.node_count, interrupt)
        search = GreedyRecompute(replace(problem, start=plan.sequence), inner)
        search.repair()
        guard.exhausted(inner.work)
        found = PlannedSequence.of(search.evaluator, NAME)
        if found.rank(problem.budget_bytes) < best.rank(problem.budget_bytes):
            best = found
    detail = f"distinct blocks: {chain.distinct} of {len(chain.blocks)}"
    return guard.finish(best, best=best.seconds, detail=detail)
