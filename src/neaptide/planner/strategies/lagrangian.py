"""Recomputation by prices of bytes at every moment: a pool of repetitions that grows by what pays, then whole numbers.

The multipliers of a linear program over a pool of repetitions price a byte at each first execution and repetition
(a Lagrangian over all steps at once). What pays at these prices and is not in the pool joins it, until nothing does
(column generation, Dantzig and Wolfe 1960). Each answer is rounded and carried out exactly, repaired and put back;
the best plan counts. Then the choice is made in whole numbers, first where the best plan and the program disagree
(Danna, Rothberg and Le Pape 2005, RINS), then in stretches of neighbours.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from neaptide.linear.arrays import Flags
from neaptide.linear.tolerances import HALF, NEARLY
from neaptide.outcome import LimitGuard, Limits, Outcome
from neaptide.planner.objective import PlannedSequence, PlanningProblem
from neaptide.planner.recompute.bounds.certificate import recompute_bound
from neaptide.planner.recompute.pool.pool import Item, RepetitionPool
from neaptide.planner.recompute.pool.prices import RepetitionPrices
from neaptide.planner.recompute.pool.program import PoolAnswer, RepetitionProgram
from neaptide.planner.recompute.settings import SETTINGS
from neaptide.planner.recompute.units import StageUnits, stage_units
from neaptide.planner.strategies import greedy_recompute
from neaptide.planner.strategies.greedy_recompute import GreedyRecompute, descent_guard

NAME: Final = "lagrangian"
_ROUNDS: Final = 12  # answers in fractions, and as many in whole numbers
# Repetitions that join a pool at once at least, and that are free at once in whole numbers; a program in whole numbers is
# charged for as many tries.
_AT_ONCE: Final = 100
_SLACK: Final = 2.0  # what costs up to so many times what it saves joins the pool when nothing better is left
# Rows of bytes times variables of a pool that is tried in whole numbers as a whole, and times twice the free items of a
# part: what takes the solver tenths of a second.
_WHOLE_ENTRIES: Final = 8000
_ENTRIES_PER_TRY: Final = 50  # of a program; each try is one unit of work


def solve(
    problem: PlanningProblem, limits: Limits, interrupt: threading.Event | None = None
) -> Outcome[PlannedSequence]:
    """The best plan of the pool; the peak is never higher than that of the larger of start and budget.

    Where nothing is known yet, a plan by marginal prices and the bound on the time of any plan give the first
    repetitions to choose from. O(rounds x one sparse linear program with a few variables for each item), then at most some
    integer programs of limited size.
    """
    guard = LimitGuard(limits, interrupt)
    step = problem.step
    start = PlannedSequence.evaluate(step, problem.first_sequence(), NAME)
    is_whole = len(start.sequence) == step.node_count
    if not step.node_count or (is_whole and start.peak_with_workspace_bytes <= problem.budget_bytes):
        return guard.finish(start, best=start.seconds, bound=start.seconds if is_whole else None)
    least = None
    firsts = [start]
    if not problem.known:
        if is_whole:
            inner = descent_guard(guard, step.node_count, interrupt)
            outcome = greedy_recompute.solve(problem, inner.limits, interrupt)
            guard.exhausted(outcome.work)
            firsts.append(outcome.require())
        order = tuple(dict.fromkeys(problem.first_sequence()))
        bound = recompute_bound(step, problem.budget_bytes, sequence=order, guard=guard)
        if not bound.is_infeasible:
            least = bound.seconds
            enough = max(problem.enough_seconds, least)
            problem = replace(problem, known=bound.repetitions, enough_seconds=enough)
    firsts.sort(key=lambda plan: plan.rank(problem.budget_bytes))
    search = _Search(problem, guard, interrupt, firsts)
    search.grow()
    search.settle()
    best = start
    if search.best.rank(problem.budget_bytes) < start.rank(problem.budget_bytes):
        best = replace(search.best, strategy=NAME)
    if least is None or best.peak_with_workspace_bytes > problem.budget_bytes:
        return guard.finish(best, best=best.seconds)
    detail = "the bound holds for this order of first executions"
    return guard.finish(best, best=best.seconds, bound=min(least, best.seconds), detail=detail)


class _Search:
    def __init__(
        self,
        problem: PlanningProblem,
        guard: LimitGuard,
        interrupt: threading.Event | None,
        firsts: Sequence[PlannedSequence],
    ) -> None:
        self.problem = problem
        self.step = problem.step
        self.budget = problem.budget_bytes
        self.guard = guard
        self.interrupt = interrupt
        order = tuple(dict.fromkeys(problem.first_sequence()))
        self.units: StageUnits = stage_units(problem.step, order)
        self.program = RepetitionProgram(problem.budget_bytes, problem.step.baseline_seconds)
        self.best = firsts[0]
        self.chosen = self.units.items_of(firsts[0].sequence)
        self.items = self.units.items_at(problem.known)
        self.items.update(*(self.units.items_of(plan.sequence) for plan in firsts))
        self.pool = RepetitionPool(self.units, self.items)
        self._relaxed: PoolAnswer | None = None

    def grow(self) -> None:
        """Answer in fractions and add what pays, until nothing does."""
        for _ in range(_ROUNDS):
            if self.guard.exhausted(1 + len(self.items) // _ENTRIES_PER_TRY):
                return
            answer = self._answer()
            if answer is None:
                return
            self._try(answer)
            if not self._add(RepetitionPrices(self.pool, answer).missing(self._most_new())):
                return

    def settle(self) -> None:
        """Choose in whole numbers, a part at a time; where that brings nothing, from a larger pool."""
        misses = 0
        is_widened = False
        for _ in range(_ROUNDS):
            relaxed = self._answer()
            if relaxed is None or self._is_enough():
                return
            if misses >= SETTINGS.misses or (misses and self._is_small()):
                if is_widened or not self._widen(relaxed):
                    return
                is_widened = True
                relaxed = self._answer()
                if relaxed is None:
                    return
                misses = 0
            chosen = np.array([item in self.chosen for item in self.pool.items], dtype=bool)
            free = self._free(relaxed, chosen, misses)
            if not free.any() or self.guard.exhausted(self._tries_of(free)):
                return
            answer = self.program.solve_whole(
                self.pool, ~free, chosen, nodes=1, time_s=self.guard.remaining_s()
            )
            if answer is not None and self._try(answer):
                self._add(self.chosen)
                misses = 0
            else:
                misses += 1

    def _is_small(self) -> bool:
        """Whether the whole pool can be chosen from in whole numbers."""
        return len(self.program.watched) * self.pool.variables <= _WHOLE_ENTRIES

    def _tries_of(self, free: Flags) -> int:
        """What is charged for a program in whole numbers."""
        entries = len(self.program.watched) * self.pool.variables * float(free.mean())
        return _AT_ONCE + int(entries) // _ENTRIES_PER_TRY

    def _is_enough(self) -> bool:
        best = self.best
        return best.peak_with_workspace_bytes <= self.budget and best.seconds <= self.problem.enough_seconds

    def _widen(self, answer: PoolAnswer) -> bool:
        """Have items in the pool that nearly pay; whether there are any."""
        prices = RepetitionPrices(self.pool, answer)
        most = self._most_new()
        shifted = prices.shifted(self.pool.profile(answer.values).tolist())
        return self._add([*prices.missing(most, _SLACK), *shifted[:most]])

    def _most_new(self) -> int:
        """Items that join the pool at once."""
        return max(_AT_ONCE, self.step.node_count // 6)

    def _free(self, answer: PoolAnswer, chosen: Flags, number: int) -> Flags:
        """The items of the next part: those on which plan and program disagree, then neighbours in turn."""
        count = len(chosen)
        if number == 0 and self._is_small():
            return np.ones(count, dtype=bool)
        size = min(_AT_ONCE, _WHOLE_ENTRIES // max(2 * len(self.program.watched), 1))
        offset = number // 2 * size // 2
        differs = np.flatnonzero(np.abs(answer.values[:count] - chosen) > NEARLY)
        free = np.zeros(count, dtype=bool)
        if number % 2 == 0 and len(differs):
            free[np.roll(differs, -(offset % len(differs)))[:size]] = True
        else:
            first = offset % max(count, 1)
            free[first : first + size] = True
        return free

    def _try(self, answer: PoolAnswer) -> bool:
        """Carry an answer out, repair it and put back; whether the plan is the best so far."""
        shares = zip(self.pool.items, answer.values[: len(self.pool.items)].tolist(), strict=True)
        sequence = self.units.sequence(item for item, share in shares if share > HALF)
        start = replace(self.problem, start=sequence)
        inner = descent_guard(self.guard, self.step.node_count, self.interrupt)
        search = GreedyRecompute(start, inner)
        search.repair()
        self.guard.exhausted(inner.work)
        plan = PlannedSequence.of(search.evaluator, NAME)
        if plan.rank(self.budget) >= self.best.rank(self.budget):
            return False
        self.best = plan
        self.chosen = self.units.items_of(plan.sequence)
        return True

    def _add(self, items: Iterable[Item]) -> bool:
        """Have items in the pool; whether any is new."""
        before = len(self.items)
        self.items.update(items)
        if len(self.items) == before:
            return False
        self.pool = RepetitionPool(self.units, self.items)
        self._relaxed = None
        return True

    def _answer(self) -> PoolAnswer | None:
        """The answer in fractions for the pool as it is."""
        if self._relaxed is None:
            self._relaxed = self.program.relax(self.pool, self.guard.remaining_s())
        return self._relaxed
