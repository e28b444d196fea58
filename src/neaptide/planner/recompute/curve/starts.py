"""Plans to start the search for a curve from: those of a chain program, for a ladder of budgets.

One table of the chain program answers every budget, and carrying an answer out is cheap, so a whole ladder of plans
costs about as much as one search. They charge worst cases of whole blocks, so what they are asked for and what their
peak turns out to be differ: they are judged by their peaks. The other end is the plan that holds nothing of the forward part.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from neaptide.outcome import LimitGuard
from neaptide.planner.objective import PlannedSequence, PlanningProblem
from neaptide.planner.recompute.chain.known import KnownChains
from neaptide.planner.recompute.chain.nominal import NominalBudgets
from neaptide.planner.recompute.chain.search import chain_of
from neaptide.planner.recompute.forward_units import forward_units
from neaptide.planner.recompute.settings import SETTINGS
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.problem import StepProblem
from neaptide.schedule.replays import Replays

NAME: Final = "block_dp"
_NOTHING_HELD: Final = "nothing_held"


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


def nothing_held(
    step: StepProblem, order: tuple[int, ...], most: int, guard: LimitGuard
) -> PlannedSequence | None:
    """The plan in which each node of the backward recomputes all that it reads of the forward part, from the beginning.

    A chain runs in three blocks so, however long it is; the price is a quarter of its length. None where there would be more
    recomputations than `most`, or than the guard allows. O(recomputations + backward nodes x steps).
    """
    forward = forward_units(step, order)
    evaluator = Evaluator(step, order)
    replays = Replays(evaluator)
    count = 0
    # The last first: what earlier nodes of the backward need is then gone where they need it.
    for node, units in reversed(list(zip(order[forward.turning :], forward.reads, strict=True))):
        for unit in units:
            closure = replays.closure(step.created[unit][0], node)
            if not closure.nodes or closure.refusal:
                continue
            count += len(closure.nodes)
            if count > most or guard.exhausted(len(closure.nodes)) is not None:
                return None
            evaluator.apply(replays.insertion(closure, node))
            evaluator.forget_undo()
    return PlannedSequence.of(evaluator, _NOTHING_HELD) if count and guard.check_now() is None else None
