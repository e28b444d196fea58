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
from neaptide.planner.recompute.descents import descent_guard
from neaptide.planner.recompute.pool.pool import Item, RepetitionPool
from neaptide.planner.recompute.pool.prices import RepetitionPrices
from neaptide.planner.recompute.pool.program import PoolAnswer, RepetitionProgram
from neaptide.planner.recompute.settings import SETTINGS
from neaptide.planner.recompute.stage_units import StageUnits, stage_units
from neaptide.planner.strategies import closure, greedy_recompute
from neaptide.planner.strategies.greedy_recompute import GreedyRecompute

NAME: Final = "lagrangian"


def solve(
    problem: PlanningProblem, limits: Limits, interrupt: threading.Event | None = None
) -> Outcome[PlannedSequence]:
    """The best plan of the pool; the peak is never higher than that of the larger of start and budget.

    Where nothing is known yet, plans by marginal prices and by the closure model, and the bound on the time of any plan,
    give the first repetitions to choose from. O(rounds x one sparse linear program with a few variables for each
    item), then at most some integer programs of limited size.
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
            firsts.extend(_first_plans(problem, guard, interrupt))
        problem, least = _with_bound(problem, guard)
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


def _first_plans(
    problem: PlanningProblem, guard: LimitGuard, interrupt: threading.Event | None
) -> list[PlannedSequence]:
    """Plans of strategies that take little time."""
    found = []
    for strategy in (greedy_recompute, closure):
        inner = descent_guard(guard, problem.step.node_count, interrupt)
        outcome = strategy.solve(problem, inner.limits, interrupt)
        guard.exhausted(outcome.work)
        found.append(outcome.require())
    return found


def _with_bound(problem: PlanningProblem, guard: LimitGuard) -> tuple[PlanningProblem, float | None]:
    """The problem with what the bound knows: the least time, and repetitions that its answer asks for."""
    order = tuple(dict.fromkeys(problem.first_sequence()))
    bound = recompute_bound(problem.step, problem.budget_bytes, sequence=order, guard=guard)
    if bound.is_infeasible:
        return problem, None
    enough = max(problem.enough_seconds, bound.seconds)
    return replace(problem, known=bound.repetitions, enough_seconds=enough), bound.seconds


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
        self.chosen = self._items_of(firsts[0].sequence)
        self.items = self._known_items().union(*(self._items_of(plan.sequence) for plan in firsts))
        self.pool = RepetitionPool(self.units, self.items)
        self._relaxed: PoolAnswer | None = None

    def grow(self) -> None:
        """Answer in fractions and add what pays, until nothing does."""
        for _ in range(2 * SETTINGS.turns):
            if self.guard.exhausted(1 + len(self.items) // SETTINGS.entries_per_try):
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
        for _ in range(2 * SETTINGS.turns):
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
                self.pool, ~free, chosen, nodes=SETTINGS.whole_nodes, time_s=self.guard.remaining_s()
            )
            if answer is not None and self._try(answer):
                self._add(self.chosen)
                misses = 0
            else:
                misses += 1

    def _is_small(self) -> bool:
        """Whether the whole pool can be chosen from in whole numbers."""
        return len(self.program.watched) * self.pool.variables <= SETTINGS.whole_entries

    def _tries_of(self, free: Flags) -> int:
        """What is charged for a program in whole numbers."""
        entries = len(self.program.watched) * self.pool.variables * float(free.mean())
        return SETTINGS.items_at_once + int(entries) // SETTINGS.entries_per_try

    def _is_enough(self) -> bool:
        best = self.best
        return best.peak_with_workspace_bytes <= self.budget and best.seconds <= self.problem.enough_seconds

    def _widen(self, answer: PoolAnswer) -> bool:
        """Have items in the pool that nearly pay; whether there are any."""
        prices = RepetitionPrices(self.pool, answer)
        most = self._most_new()
        shifted = prices.shifted(self.pool.profile(answer.values).tolist())
        return self._add([*prices.missing(most, SETTINGS.slack), *shifted[:most]])

    def _most_new(self) -> int:
        """Items that join the pool at once."""
        return max(SETTINGS.items_at_once, self.step.node_count // SETTINGS.turns)

    def _free(self, answer: PoolAnswer, chosen: Flags, number: int) -> Flags:
        """The items of the next part: those on which plan and program disagree, then neighbours in turn."""
        count = len(chosen)
        if number == 0 and self._is_small():
            return np.ones(count, dtype=bool)
        size = min(SETTINGS.items_at_once, SETTINGS.whole_entries // max(2 * len(self.program.watched), 1))
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
        by_stage: list[list[int]] = [[] for _ in range(self.units.stages)]
        shares = answer.values[: len(self.pool.items)].tolist()
        for (stage, unit), share in zip(self.pool.items, shares, strict=True):
            if share > HALF:
                by_stage[stage].append(unit)
        start = replace(self.problem, start=self.units.sequence(by_stage))
        inner = descent_guard(self.guard, self.step.node_count, self.interrupt)
        search = GreedyRecompute(start, inner)
        search.repair()
        self.guard.exhausted(inner.work)
        plan = PlannedSequence.of(search.evaluator, NAME)
        if plan.rank(self.budget) >= self.best.rank(self.budget):
            return False
        self.best = plan
        self.chosen = self._items_of(plan.sequence)
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

    def _known_items(self) -> set[Item]:
        """Repetitions that others have found, where units may run again there."""
        units = self.units
        number_of = {unit.creator: number for number, unit in enumerate(units.units)}
        stage_of = {node: stage for stage, node in enumerate(units.order)}
        stage_of[self.step.node_count] = len(units.order)
        found = {
            (stage_of[before], number_of[node])
            for node, before in self.problem.known
            if node in number_of and before in stage_of
        }
        return {(s, u) for s, u in found if units.units[u].first <= s <= units.units[u].last}

    def _items_of(self, sequence: Sequence[int]) -> set[Item]:
        """The repetitions of a sequence that are in the space of plans in stages."""
        units = self.units.units
        return {
            (stage, unit)
            for stage, inside in enumerate(self.units.repeated_in(sequence))
            for unit in inside
            if units[unit].first <= stage <= units[unit].last
        }
