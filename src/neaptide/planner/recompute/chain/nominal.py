"""A chain program asked for other budgets than the one that is wanted, because it charges worst cases."""

from __future__ import annotations

from neaptide.outcome import LimitGuard
from neaptide.planner.objective import PlannedSequence, PlanningProblem
from neaptide.planner.recompute.chain.blocks import BlockChain
from neaptide.planner.recompute.chain.plans import table_of
from neaptide.planner.recompute.chain.program import ChainProgram
from neaptide.planner.recompute.chain.search import costs_of
from neaptide.planner.recompute.retention import carry_out
from neaptide.planner.recompute.settings import SETTINGS


class NominalBudgets:
    """Plans of one chain for nominal budgets, carried out at most once each."""

    def __init__(self, problem: PlanningProblem, chain: BlockChain, guard: LimitGuard, name: str) -> None:
        """Solve the program. The guard is charged with the blocks of the chain, squared."""
        self.problem = problem
        self.chain = chain
        self.guard = guard
        self.name = name
        self.costs = costs_of(problem, chain)
        self.program = ChainProgram(self.costs, int(SETTINGS.reach * problem.budget_bytes), SETTINGS.slots)
        guard.exhausted(len(chain.blocks) ** 2)
        self._found: dict[frozenset[tuple[int, int | None, int, int]], PlannedSequence] = {}

    def plan(self, share: float) -> PlannedSequence | None:
        """The plan for a share of the budget, carried out; None when there is none or no time is left."""
        holds = self.program.plan(int(share * self.problem.budget_bytes))
        if holds is None or self.guard.check_now() is not None:
            return None
        key = frozenset((h.block, h.option, h.first, h.last) for h in holds)
        if key not in self._found:
            table = table_of(self.chain, self.costs, holds)
            self._found[key] = carry_out(self.problem, self.chain.forward, table, self.guard, self.name)
        return self._found[key]
