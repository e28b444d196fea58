"""Lower bounds on the time of a plan: what recomputation costs at least, in one order of first executions.

Look at the moment when node p runs for the first time. A storage that was made before and is needed at p or later is
held across p, or its maker runs again later. A node that runs again needs each of its operands: held across p, or
recomputed as well. What is held must fit beside what p makes and its scratch bytes. The least seconds that run again
under these rules bound every plan from below, for each p. Several steps together give a larger bound, because what runs
again between one and the next adds up.

There are three passes: a few steps, each alone; the dearest of them together, in rounds that add steps at which the answer,
carried out, is above the budget, and drop those whose bytes do not bind; and, where the program is small enough, whole
numbers in place of fractions, which lift the bound to what those steps really cost.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from neaptide.linear.arrays import Flags
from neaptide.linear.tolerances import HALF, NEARLY
from neaptide.outcome import LimitGuard
from neaptide.planner.recompute.bounds.floor import pinned_bytes
from neaptide.planner.recompute.bounds.joint_lifetimes import joint_profile, joint_repetitions
from neaptide.planner.recompute.bounds.joint_program import JointProgram, JointSolution
from neaptide.planner.recompute.bounds.step_tables import StepTables, far_apart
from neaptide.planner.recompute.settings import SETTINGS
from neaptide.schedule.problem import StepProblem

# Where the bounds look first: so many of the highest steps and of those at which the backward begins, and twice as many
# evenly over all that are above the budget. Rounds of several steps begin with half as many.
_FIRST_STEPS: Final = 8
_MISSES: Final = 2  # rounds in a row that bring hardly anything are the last
# Up to how many variables a bound is proved in whole numbers, and how far above its bound in fractions they are looked
# for, as a share of it; the less, the more is fixed beforehand.
_WHOLE_LEVELS: Final = ((400, 0.1), (2500, 0.002))


@dataclass(frozen=True, slots=True)
class RecomputeBound:
    """What recomputation costs at least, in one order of first executions."""

    # No plan runs shorter, recomputation included; infinite where no plan is within the budget.
    seconds: float
    # (node, node before whose first execution it runs again; the number of nodes for the end) of what the
    # programs' answers repeat, in fractions and in whole numbers: a good plan is likely to choose from them.
    repetitions: frozenset[tuple[int, int]] = frozenset()

    @property
    def is_infeasible(self) -> bool:
        """Whether no plan is within the budget."""
        return self.seconds == float("inf")


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
    baseline = tables.step.baseline_seconds
    is_above = tables.profile > budget_bytes
    if not is_above.any():
        return RecomputeBound(baseline)
    if int(pinned_bytes(tables).max(initial=0)) > budget_bytes:
        return RecomputeBound(float("inf"))
    rounds = JointRounds(tables, budget_bytes, guard)
    alone: dict[int, float] = {}
    for position in first_positions(tables, is_above, is_narrow=True):
        answer = rounds.ask((position,))
        alone[position] = 0.0 if answer is None else answer[1].bound
    dearest: list[int] = []
    for position in sorted(alone, key=lambda p: (-alone[p], p)):
        if len(dearest) < _FIRST_STEPS // 2 and all(abs(position - p) >= SETTINGS.apart for p in dearest):
            dearest.append(position)
    rounds.run(dearest)
    if rounds.is_infeasible:
        return RecomputeBound(float("inf"))
    if rounds.best is None or rounds.bound <= 0.0:
        return RecomputeBound(baseline)
    program, solution = rounds.best
    whole = _whole(program, solution, guard)
    answers = [solution, *([whole] if whole is not None and whole.held else [])]
    repetitions = (joint_repetitions(tables, program.positions, answer, HALF) for answer in answers)
    return RecomputeBound(
        baseline + max(solution.bound, 0.0 if whole is None else whole.bound),
        frozenset().union(*repetitions),
    )


class JointRounds:
    """Programs that grow: what does not bind is dropped, and what an answer breaks joins.

    Attributes:
        best: the program whose bound in fractions is the largest so far, and its answer.
        is_infeasible: some program has no answer.
    """

    def __init__(self, tables: StepTables, budget_bytes: int, guard: LimitGuard | None) -> None:
        self.best: tuple[JointProgram, JointSolution] | None = None
        self.is_infeasible = False
        self._tables = tables
        self._budget = budget_bytes
        self._guard = guard

    @property
    def bound(self) -> float:
        """Seconds that run again at least, by the best answer."""
        return 0.0 if self.best is None else self.best[1].bound

    def ask(
        self, positions: Sequence[int], to_end: Collection[int] = ()
    ) -> tuple[JointProgram, JointSolution] | None:
        """The answer at some steps; None where there is none, where it would take too long, or where time is up."""
        if self.is_infeasible or (self._guard is not None and self._guard.check_now()):
            return None
        program = JointProgram(self._tables, positions, self._budget, to_end=to_end)
        if program.size > 2 * SETTINGS.most_nodes and len(positions) > 1:
            return None
        solution = program.relax(None if self._guard is None else self._guard.remaining_s())
        self.is_infeasible = solution.is_infeasible
        if not solution.held:
            return None
        if self.best is None or solution.bound > self.bound:
            self.best = program, solution
        return program, solution

    def run(self, positions: Iterable[int]) -> None:
        """Grow the program of some positions, each with the window to the end, until rounds bring hardly anything."""
        steps = first = set(positions)
        misses = 0
        while misses < _MISSES:
            least = self.bound
            answer = self.ask(sorted(steps), to_end=first)
            if answer is None:
                return
            program, solution = answer
            misses = 0 if solution.bound > least * (1.0 + SETTINGS.hardly_more) else misses + 1
            kept = program.binding(solution)
            added = self._worst_steps(program, solution, max(2, len(kept) // 2))
            if not added:
                return
            steps = {*kept, *added}

    def _worst_steps(self, program: JointProgram, solution: JointSolution, most: int) -> list[int]:
        """Steps at which an answer is above the budget, worst first, apart from each other, without its own."""
        profile = joint_profile(self._tables, program.positions, solution)
        is_above = self._tables.profile > self._budget
        excess = np.where(is_above, profile - self._budget * (1.0 + NEARLY), 0.0)
        excess[list(program.positions)] = 0.0
        worst = np.argsort(-excess, kind="stable")
        return far_apart(worst[excess[worst] > 0.0].tolist(), most)


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


def _whole(program: JointProgram, solution: JointSolution, guard: LimitGuard | None) -> JointSolution | None:
    """The program of an answer in whole numbers; None where that would take too long."""
    level = next((level for most, level in _WHOLE_LEVELS if program.size <= most), None)
    if level is None or (guard is not None and guard.check_now()):
        return None
    below = solution.bound * (1.0 + level)
    return program.solve_whole(below, nodes=1, time_s=None if guard is None else guard.remaining_s())
