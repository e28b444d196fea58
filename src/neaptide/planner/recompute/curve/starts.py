"""Plans to start the search for a curve from: those of a chain program, for a ladder of budgets.

One table of the chain program answers every budget, and carrying an answer out is cheap, so a whole ladder of plans
costs about as much as one search. They charge worst cases of whole blocks, so what they are asked for and what their
peak turns out to be differ: they are judged by their peaks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from neaptide.outcome import LimitGuard
from neaptide.planner.objective import PlannedSequence, PlanningProblem
from neaptide.planner.recompute.chain.known import KnownChains
from neaptide.planner.recompute.chain.nominal import NominalBudgets
from neaptide.planner.recompute.chain.search import chain_of
from neaptide.planner.recompute.settings import SETTINGS
from neaptide.schedule.problem import StepProblem

NAME: Final = "block_dp"


def chain_plans(
    step: StepProblem,
    order: tuple[int, ...],
    high: int,
    low: int,
    count: int,
    guard: LimitGuard,
    chains: KnownChains | None = None,
) -> Iterator[PlannedSequence]:
    """Plans of one order, from the largest budget down. None where the step is no chain of blocks.

    Args:
        step: the problem.
        order: of first executions, without repetitions.
        high: bytes of the largest budget.
        low: bytes below which there is nothing to be found.
        count: of budgets for each table.
        guard: charged with the recomputations that are carried out; stops the search.
        chains: of the planning problems of the step; those that are there already are not worked out again.
    """
    known = KnownChains() if chains is None else chains
    for most, part in SETTINGS.ladder_tables:
        if guard.check_now() is not None:
            return
        top = high // part
        problem = PlanningProblem(step, int(top / SETTINGS.reach), start=order, chains=known)
        chain = chain_of(problem, most)
        if isinstance(chain, str) or top <= low:
            continue
        ladder = NominalBudgets(problem, chain, guard, NAME)
        seen: set[tuple[int, ...]] = set()
        for rung in range(count):
            nominal = top - (top - low) * rung // count
            plan = ladder.plan(nominal / max(problem.budget_bytes, 1))
            if plan is not None and plan.sequence not in seen:
                seen.add(plan.sequence)
                yield plan
