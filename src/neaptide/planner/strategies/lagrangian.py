"""Recomputation by a Lagrangian over several steps: a multiplier for the bytes of each step that a plan so far breaks.

The joint program at a few steps decides what is held across each of them and what runs again between them. It starts
at the step where most is held for later. Each answer is carried out exactly: where a first execution is above the
budget then, its bytes join the program, and steps whose multiplier is zero leave it. Repair and put back make a plan
of each answer; the best one counts. Multipliers also say which choices no plan better than the best one makes, and
when nothing is left to choose, the best one is proved to be the fastest of its order of first executions.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Final

import numpy as np

from neaptide.outcome import LimitGuard, Limits, Outcome
from neaptide.planner.objective import PlannedSequence, PlanningProblem
from neaptide.planner.recompute.forward_units import turning_point
from neaptide.planner.recompute.joint_lifetimes import Repetition, joint_lifetimes
from neaptide.planner.recompute.joint_program import JointProgram, JointSolution
from neaptide.planner.recompute.recomputations import recompute_moves
from neaptide.planner.recompute.step_tables import StepTables
from neaptide.planner.strategies.greedy_recompute import GreedyRecompute
from neaptide.schedule.evaluate import Evaluator

NAME: Final = "lagrangian"
_MOST_ROUNDS: Final = 12
_MOST_STEPS: Final = 6
# The search ends after this many answers in a row that made no better plan.
_MOST_MISSES: Final = 4
# Programs with more variables are answered in fractions, rounded; still larger ones are not made.
_WHOLE_VARIABLES: Final = 3000
_MOST_VARIABLES: Final = 40000
# A step counts while it has this share of the largest multiplier.
_BINDING: Final = 1e-4
# Nodes of branch and bound.
_WHOLE_NODES: Final = 30
# Without a plan within the budget, whole answers are looked for up to this share above the bound.
_LEVEL: Final = 0.05
# Fractions from here on count as one.
_HALF: Final = 0.5
# A plan this close to the proved least time, as a share of the baseline's, is not searched further.
_CLOSE_ENOUGH: Final = 2e-5


def solve(
    problem: PlanningProblem, limits: Limits, interrupt: threading.Event | None = None
) -> Outcome[PlannedSequence]:
    """The start with recomputations that the joint program of several steps asks for, repaired and put back.

    A start with repetitions, or one within the budget, is handed back as it is. The peak is never higher than that of
    the larger of start and budget. The bound of the outcome holds for the start's order of first executions.
    """
    guard = LimitGuard(limits, interrupt)
    step = problem.step
    start = PlannedSequence.evaluate(step, problem.first_sequence(), NAME, problem.start_moves)
    if start.peak_with_workspace_bytes <= problem.budget_bytes:
        is_free = len(start.sequence) == step.node_count
        return guard.finish(start, best=start.seconds, bound=start.seconds if is_free else None)
    if len(start.sequence) != step.node_count:
        return guard.finish(start, best=start.seconds, detail="the start has recomputations already")
    if not step.node_count:
        return guard.finish(start, best=start.seconds, detail="nothing runs")
    search = _Search(problem, guard, start)
    search.run()
    best = search.best
    if best is not start:
        moves = recompute_moves(Evaluator(step, best.sequence))
        best = replace(best, moves=(*problem.start_moves, *moves))
    if best.peak_with_workspace_bytes > problem.budget_bytes:
        return guard.finish(best, best=best.seconds)
    bound = step.baseline_seconds + search.bound
    detail = "the bound holds for this order of first executions"
    return guard.finish(best, best=best.seconds, bound=min(bound, best.seconds), detail=detail)


class _Search:
    def __init__(self, problem: PlanningProblem, guard: LimitGuard, start: PlannedSequence) -> None:
        self.problem = problem
        self.step = problem.step
        self.budget = problem.budget_bytes
        self.guard = guard
        self.best = start
        self.bound = 0.0
        self.tables = StepTables(problem.step, problem.first_sequence())

    def run(self) -> None:
        """Answer, carry out, add the step that was broken, until none is or nothing is left to be won."""
        first = turning_point(Evaluator(self.step, self.problem.first_sequence()))
        rows: dict[int, int] = {first: 0}
        tried: set[tuple[tuple[int, int], ...]] = set()
        misses = 0
        for _ in range(_MOST_ROUNDS):
            if self.guard.exhausted(len(rows)):
                return
            tried.add(tuple(sorted(rows.items())))
            program = JointProgram(self.tables, sorted(rows), self.budget, rows)
            if program.size > _MOST_VARIABLES:
                return
            relaxed = program.relax()
            if relaxed.is_infeasible or not relaxed.held:
                return
            is_bound = not any(rows.values())
            if is_bound:
                self.bound = max(self.bound, relaxed.bound)
            before = self.best
            broken = self._carry_out(program.positions, relaxed)
            if len(tried) > 1 or not broken:
                whole = self._whole(program, relaxed, is_bound=is_bound)
                broken = broken if whole is None else self._carry_out(program.positions, whole)
            misses = 0 if self.best is not before else misses + 1
            binding = self._binding(program.positions, relaxed.multipliers)
            kept = {p: rows[p] for p in binding}
            following = ({**kept, position: withheld} for position, withheld in broken)
            new = next((r for r in following if tuple(sorted(r.items())) not in tried), None)
            if new is None or misses >= _MOST_MISSES or self._is_close():
                return
            rows = new

    def _whole(
        self, program: JointProgram, relaxed: JointSolution, *, is_bound: bool
    ) -> JointSolution | None:
        """The answer in whole numbers; None when that would be too long, or nothing better is left."""
        if program.size > _WHOLE_VARIABLES or self._is_close() or self.guard.check_now() is not None:
            return None
        level = relaxed.bound * (1.0 + _LEVEL)
        if self.best.peak_with_workspace_bytes <= self.budget:
            level = self.best.seconds - self.step.baseline_seconds
        whole = program.solve_whole(level, nodes=_WHOLE_NODES, time_s=self.guard.remaining_s())
        if is_bound:
            self.bound = max(self.bound, whole.bound)
        return whole if whole.held else None

    def _is_close(self) -> bool:
        """Whether nothing better than the best plan is left, or not by an amount that matters."""
        left = self.best.seconds - self.step.baseline_seconds - self.bound
        is_met = self.best.peak_with_workspace_bytes <= self.budget
        return is_met and left <= _CLOSE_ENOUGH * self.step.baseline_seconds

    def _carry_out(self, positions: tuple[int, ...], answer: JointSolution) -> list[tuple[int, int]]:
        """Make a plan of an answer; which steps were above the budget before the repair, worst first."""
        search = GreedyRecompute(self.problem, self.guard)
        repetitions = joint_lifetimes(self.tables, positions, answer, _HALF).repetitions
        for repetition in sorted(repetitions, key=lambda r: (r.position, self.tables.position[r.node])):
            self._repeat(search, repetition)
        broken = self._broken(search.evaluator)
        search.descend()
        search.put_back()
        plan = PlannedSequence.evaluate(self.step, search.evaluator.sequence(), NAME)
        if plan.rank(self.budget) < self.best.rank(self.budget):
            self.best = plan
        return broken

    def _repeat(self, search: GreedyRecompute, repetition: Repetition) -> None:
        """Make what a node creates again; its operands are held on to where they are not made again as well."""
        created = self.step.created[repetition.node]
        if not created or self.guard.exhausted():
            return
        is_end = repetition.position >= len(self.tables.order)
        before = self.step.node_count if is_end else int(self.tables.order[repetition.position])
        closure = search.replays.closure(created[0], before, hold_from=-1)
        if closure.nodes and not closure.refusal:
            search.evaluator.apply(search.replays.insertion(closure, before))
            search.evaluator.forget_undo()

    def _broken(self, evaluator: Evaluator) -> list[tuple[int, int]]:
        """Positions of first executions above the budget, or with repetitions in front of them that are, worst first.

        With each the bytes by which those repetitions are above it: its row has to leave them free.
        """
        places = evaluator.position[self.tables.order]
        at = evaluator.bytes[places]
        starts = np.concatenate(([0], places[:-1] + 1))
        most = np.maximum.reduceat(evaluator.bytes, starts)
        worst = np.argsort(-most, kind="stable")
        above = worst[most[worst] > self.budget].tolist()
        return [(p, int(most[p] - at[p]) if most[p] > at[p] else 0) for p in above]

    def _binding(self, positions: tuple[int, ...], multipliers: tuple[float, ...]) -> list[int]:
        """The dearest positions, without those that do not bind."""
        ranked = sorted(zip(multipliers, positions, strict=True), reverse=True)
        least = _BINDING * max(multipliers, default=0.0)
        return [p for multiplier, p in ranked[: _MOST_STEPS - 1] if multiplier > least]
