"""Lower bounds on the time of a plan: what recomputation costs at least, in one order of first executions.

Look at the moment when node p runs for the first time. A storage that was made before and is needed at p or later is
held across p, or its maker runs again later. A node that runs again needs each of its operands: held across p, or
recomputed as well. What is held must fit beside what p makes and its scratch bytes. The least seconds that run again
under these rules bound every plan from below, for each p. Several steps together give a larger bound, because what runs
again between one and the next adds up.

A step needs a row where the answer so far, carried out, is above the budget. There are three passes: one step at a
time; several together, in rounds; and, where the program is small enough, whole numbers in place of fractions, which
lift the bound to what those steps really cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from neaptide.linear.arrays import Flags
from neaptide.linear.tolerances import HALF
from neaptide.outcome import LimitGuard
from neaptide.planner.recompute.bounds.floor import pinned_bytes
from neaptide.planner.recompute.bounds.joint_lifetimes import joint_repetitions
from neaptide.planner.recompute.bounds.joint_program import JointProgram, JointSolution
from neaptide.planner.recompute.bounds.joint_rounds import JointAnswer, JointRounds, worst_steps
from neaptide.planner.recompute.bounds.step_tables import StepTables
from neaptide.planner.recompute.settings import SETTINGS
from neaptide.schedule.problem import StepProblem

# Where the bounds look first: so many of the highest steps and of those at which the backward begins, and twice as many
# evenly over all that are above the budget. Rounds of several steps begin with half as many.
_FIRST_STEPS: Final = 8
_MISSES: Final = 6  # steps in a row that raise no bound before one step alone is settled
# Up to how many variables a bound is proved in whole numbers, and how far above its bound in fractions they are looked
# for, as a share of it; the less, the more is fixed beforehand.
_WHOLE_LEVELS: Final = ((400, 0.1), (2500, 0.002))


@dataclass(frozen=True, slots=True)
class RecomputeBound:
    """What recomputation costs at least, in one order of first executions.

    Attributes:
        seconds: no plan runs shorter, recomputation included.
        node: at whose first execution that is decided; the dearest of several; -1 when nothing has to run again.
        is_infeasible: no plan is within the budget.
        programs: linear and mixed-integer programs solved.
        repetitions: (node, node before whose first execution it runs again; the number of nodes for the end) of what
            the programs' answers repeat, in fractions and in whole numbers: a good plan is likely to choose from them.
    """

    seconds: float
    node: int
    is_infeasible: bool
    programs: int
    repetitions: frozenset[tuple[int, int]] = frozenset()


def recompute_bound(
    step: StepProblem,
    budget_bytes: int,
    *,
    sequence: Sequence[int] | None = None,
    guard: LimitGuard | None = None,
) -> RecomputeBound:
    """The bound for the order of first executions of a sequence, by default program order. See `bound_within`."""
    return bound_within(StepTables(step, sequence), budget_bytes, guard)


def bound_within(tables: StepTables, budget_bytes: int, guard: LimitGuard | None = None) -> RecomputeBound:
    """The largest bound over choices of steps. O(programs solved x one sparse program of a few times the graph's size).

    The time limit of the guard ends the search early; what has been found by then holds.
    """
    if not (tables.profile > budget_bytes).any():
        return RecomputeBound(tables.step.baseline_seconds, -1, is_infeasible=False, programs=0)
    return _Search(tables, budget_bytes, guard).run()


def first_positions(tables: StepTables, is_above: Flags, *, is_narrow: bool) -> list[int]:
    """Steps to ask first: where the backward begins, the highest ones, and an even grid. O(positions).

    At least one step must be above the budget. `is_narrow`: a part of each kind alone, after a look at other steps.
    """
    few = _FIRST_STEPS // (4 if is_narrow else 1)
    above = np.flatnonzero(is_above)
    grid = above[np.linspace(0, len(above) - 1, 2 * few).astype(np.int64)]
    highest = above[np.argsort(-tables.profile[above], kind="stable")[:few]]
    phases, order = tables.step.phases, tables.order.tolist()
    first = next((k for k, node in enumerate(order) if phases[node] == "backward"), len(order))
    begin = above[(above >= first - 1) & (above < first + few)]
    return list(dict.fromkeys([*begin.tolist(), *highest.tolist(), *grid.tolist()]))


class _Search:
    """The steps whose program gives the largest bound."""

    def __init__(self, tables: StepTables, budget_bytes: int, guard: LimitGuard | None) -> None:
        self.tables = tables
        self.budget = budget_bytes
        self.guard = guard
        self.is_above = tables.profile > budget_bytes
        self.programs = 0
        self.tried: dict[int, float] = {}
        self.best: JointAnswer | None = None
        self.refuted_at = -1

    def run(self) -> RecomputeBound:
        """One step at a time, several together, whole numbers."""
        self._look_at_operands()
        self._look_at_single_steps(first_positions(self.tables, self.is_above, is_narrow=True))
        self._look_at_several()
        baseline = self.tables.step.baseline_seconds
        if self.refuted_at >= 0:
            node = int(self.tables.order[self.refuted_at])
            return RecomputeBound(float("inf"), node, is_infeasible=True, programs=self.programs)
        if self.best is None or self.best.solution.bound <= 0.0:
            return RecomputeBound(baseline, -1, is_infeasible=False, programs=self.programs)
        solution, positions = self.best.solution, self.best.program.positions
        whole = self._whole(self.best)
        answers = [solution] if whole is None or not whole.held else [solution, whole]
        return RecomputeBound(
            baseline + max(solution.bound, 0.0 if whole is None else whole.bound),
            int(self.tables.order[positions[int(np.argmax(solution.multipliers))]]),
            is_infeasible=False,
            programs=self.programs,
            repetitions=frozenset().union(
                *(joint_repetitions(self.tables, positions, a, HALF) for a in answers)
            ),
        )

    def _goes_on(self) -> bool:
        return self.refuted_at < 0 and (self.guard is None or self.guard.check_now() is None)

    def _remaining_s(self) -> float | None:
        return None if self.guard is None else self.guard.remaining_s()

    def _look_at_operands(self) -> None:
        """Refute a budget that a step is above with what has to be there."""
        pinned = pinned_bytes(self.tables)
        if int(pinned.max(initial=0)) > self.budget:
            self.refuted_at = int(pinned.argmax())

    def _look_at_single_steps(self, choice: Sequence[int]) -> None:
        for position in choice:
            self._look(position)
        misses = 0
        while self._goes_on() and misses < _MISSES:
            following = self._next_single()
            if following is None:
                return
            misses = 0 if self._look(following) else misses + 1

    def _next_single(self) -> int | None:
        """The worst step of the best answer that is new; then those beside its own, with other scratch bytes."""
        best = self.best
        if best is None:
            return None
        place = best.program.positions[0]
        worst = worst_steps(self.tables, self.budget, best, _MISSES)
        beside = [place + by for by in (-2, -1, 1, 2) if 0 <= place + by < len(self.is_above)]
        new = [p for p in worst if p not in self.tried][:1]
        new += [p for p in beside if self.is_above[p] and p not in self.tried]
        return next(iter(new), None)

    def _look(self, position: int) -> bool:
        """Solve the program of a step; whether its bound is the largest so far."""
        if not self._goes_on() or position in self.tried:
            return False
        program = JointProgram(self.tables, (position,), self.budget)
        solution = program.relax(self._remaining_s())
        self.programs += 1
        self.tried[position] = solution.bound
        if solution.is_infeasible:
            self.refuted_at = position
            return False
        most = 0.0 if self.best is None else self.best.solution.bound
        if not solution.held or (
            self.best is not None and solution.bound <= most * (1.0 + SETTINGS.close_enough / 5)
        ):
            return False
        self.best = JointAnswer(program, solution)
        return True

    def _look_at_several(self) -> None:
        """Start from the dearest steps apart from each other."""
        if self.best is None or not self._goes_on():
            return
        first: list[int] = []
        most = _FIRST_STEPS // 2
        for position in sorted(self.tried, key=lambda p: (-self.tried[p], p)):
            if len(first) < most and all(abs(position - other) >= SETTINGS.apart for other in first):
                first.append(position)
        rounds = JointRounds(self.tables, self.budget, self.guard)
        rounds.run(first)
        self.programs += rounds.programs
        self.refuted_at = rounds.refuted_at
        if rounds.best is not None and rounds.best.solution.bound > self.best.solution.bound:
            self.best = rounds.best

    def _whole(self, answer: JointAnswer) -> JointSolution | None:
        """The program of an answer in whole numbers; None where that would take too long."""
        level = next((level for most, level in _WHOLE_LEVELS if answer.program.size <= most), None)
        if level is None or not self._goes_on():
            return None
        below = answer.solution.bound * (1.0 + level)
        self.programs += 1
        return answer.program.solve_whole(below, nodes=1, time_s=self._remaining_s())
