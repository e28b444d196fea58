"""Offload chosen together with recomputations: from several sequences, one exact change at a time.

A start is a sequence within the budget once its longest gaps are filled: the order without recomputations, the plans by
recomputation alone that are known, and greedy recomputation for nominal budgets between the one that is meant and the
peak, whose remainder is offloaded. From each, recomputations and offloaded intervals are exchanged wherever that is
faster and fits.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from neaptide.outcome import LimitGuard, Limits, Outcome
from neaptide.planner.objective import PlanningProblem
from neaptide.planner.offload.carried import Carried, OffloadPlan
from neaptide.planner.offload.exchanges import descend
from neaptide.planner.offload.problem import OffloadProblem
from neaptide.planner.strategies import greedy_recompute
from neaptide.schedule.evaluate import Evaluator

NAME: Final = "offload"
_NOMINAL: Final = (0.2, 0.4, 0.6, 0.8)
"""Nominal budgets, as shares of what lies between the budget and the peak of the order."""
_MOST_STARTS: Final = 3
_MOST_SWAPS: Final = 300
"""Exchanges that are tried in a step of `_NODES` nodes. Each costs by positions: smaller steps have more of them, and none
has less than half."""
_NODES: Final = 2000


def choose_offload(
    problem: OffloadProblem, limits: Limits, interrupt: threading.Event | None = None
) -> Outcome[OffloadPlan]:
    """The fastest plan found within a budget with offloaded storages; never worse than those that are known.

    O(exchanges x (positions + offloaded intervals x positions in their gaps)).
    """
    guard = LimitGuard(limits, interrupt)
    search = _Search(problem, guard, interrupt)
    before = search.best.planned
    is_free = before.peak_with_workspace_bytes <= problem.budget_bytes
    if problem.step.node_count and not (is_free and len(before.sequence) == problem.step.node_count):
        search.run()
    best, bound = search.best, None
    if best.planned.peak_with_workspace_bytes <= problem.budget_bytes:
        bound = min(problem.step.baseline_seconds, best.planned.seconds)
    return guard.finish(best, best=best.planned.seconds, bound=bound)


class _Search:
    def __init__(self, problem: OffloadProblem, guard: LimitGuard, interrupt: threading.Event | None) -> None:
        self.problem, self.guard, self.interrupt = problem, guard, interrupt
        self.step, self.budget, self.host = problem.step, problem.budget_bytes, problem.host
        self.best = problem.best_known()

    def run(self) -> None:
        """Fill the gaps of each start, then exchange from the fastest on, until nothing is left to win."""
        starts = []
        for sequence in self._starts():
            starts.append(self._filled(sequence))
            if self.problem.is_enough(self.best.planned) or self.guard.check_now():
                return
        # Where nothing is within the budget, the lowest peak takes its place.
        lowest = max(min(start.placed().peak_bytes for start in starts), self.budget)
        for start in starts:
            start.budget = lowest
        within = [start for start in starts if start.is_within()]
        self._exchange(sorted(within, key=Carried.seconds)[:_MOST_STARTS])

    def _starts(self) -> Iterator[Sequence[int]]:
        order = self.problem.order
        yield order
        yield from (plan.sequence for plan in self.problem.known if plan.sequence != order)
        peak = Evaluator(self.step, order).peak
        for share in _NOMINAL:
            nominal = self.budget + int(share * (peak - self.budget))
            asked = PlanningProblem(self.step, nominal, start=order)
            outcome = greedy_recompute.solve(asked, self.guard.left(), self.interrupt)
            self.guard.exhausted(outcome.work)
            yield outcome.require().sequence

    def _filled(self, sequence: Sequence[int]) -> Carried:
        """A sequence with its longest gaps filled until it fits, or all of them."""
        carried = Carried(Evaluator(self.step, sequence), self.host, self.budget)
        carried.fill_until_within(self.guard)
        carried.drop_needless()
        self._take(carried)
        return carried

    def _exchange(self, starts: Iterable[Carried]) -> None:
        """Descend from plans that are within the budget."""
        most = max(_MOST_SWAPS * _NODES // max(self.step.node_count, 1), _MOST_SWAPS // 2)
        tries = LimitGuard(Limits(work=most))
        for carried in starts:
            if not self.problem.is_enough(self.best.planned):
                descend(carried, self.guard, tries)
                carried.drop_needless()
                self._take(carried)

    def _take(self, carried: Carried) -> None:
        """Have a plan as the best if it is."""
        excess = max(carried.placed().peak_bytes - self.budget, 0)
        if (excess, carried.seconds()) > self.best.rank(self.budget)[:2]:
            return
        plan = carried.plan(NAME)
        if plan.host_bytes <= self.host.nbytes and plan.rank(self.budget) < self.best.rank(self.budget):
            self.best = plan
