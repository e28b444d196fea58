"""Grow a joint program: solve it, drop what does not bind, add what its answer breaks, several things a round.

An answer carried out says at which steps it is above the budget; those become steps of the program. What the windows
and rows of the program so far bring is kept: a window that new steps cut in two stays as a longer one. So the bound
never falls, but for what the solver's tolerances take for not binding.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from neaptide.linear.tolerances import NEARLY
from neaptide.outcome import LimitGuard
from neaptide.planner.recompute.bounds.joint_lifetimes import joint_profile
from neaptide.planner.recompute.bounds.joint_program import JointProgram, JointSolution, Window
from neaptide.planner.recompute.bounds.longer_windows import broken_windows
from neaptide.planner.recompute.bounds.rounded_rows import RoundedRow, rounded_rows
from neaptide.planner.recompute.bounds.step_tables import StepTables
from neaptide.planner.recompute.settings import SETTINGS


@dataclass(frozen=True, slots=True)
class JointAnswer:
    """A program that has been solved in fractions."""

    program: JointProgram
    solution: JointSolution


@dataclass(frozen=True, slots=True)
class RoundLimits:
    """How far a program grows.

    Attributes:
        misses: rounds in a row that bring nothing.
        rise: of the bound, as a share of it, that is something.
        most_variables: of a program.
    """

    misses: int
    rise: float
    most_variables: int


class JointRounds:
    """The rounds of one search.

    Attributes:
        best: the answer with the largest bound so far.
        programs: solved so far.
        refuted_at: the last position of a program without an answer; -1 while there is none.
    """

    def __init__(
        self,
        tables: StepTables,
        budget_bytes: int,
        guard: LimitGuard | None,
        limits: RoundLimits | None = None,
    ) -> None:
        self.best: JointAnswer | None = None
        self.programs = 0
        self.refuted_at = -1
        self._tables = tables
        self._budget = budget_bytes
        self._limits = limits or RoundLimits(SETTINGS.stalls, SETTINGS.hardly_more, 2 * SETTINGS.most_nodes)
        self._guard = guard

    def run(self, positions: Iterable[int]) -> None:
        """Grow the program of some positions, each with the window from it to the end."""
        end = len(self._tables.order)
        steps = set(positions)
        windows: set[Window] = {(position, end) for position in steps}
        rows: list[RoundedRow] = []
        misses = 0
        while misses < self._limits.misses and (self._guard is None or self._guard.check_now() is None):
            program = JointProgram(self._tables, sorted(steps), self._budget, windows=windows, rounded=rows)
            if program.size > self._limits.most_variables:
                return
            solution = program.relax(None if self._guard is None else self._guard.remaining_s())
            self.programs += 1
            if solution.is_infeasible:
                self.refuted_at = program.positions[-1]
                return
            if not solution.held:
                return
            least = 0.0 if self.best is None else self.best.solution.bound
            misses = 0 if solution.bound > least * (1.0 + self._limits.rise) else misses + 1
            if self.best is None or solution.bound > least:
                self.best = JointAnswer(program, solution)
            kept = program.binding(solution)
            added = worst_steps(
                self._tables, self._budget, JointAnswer(program, solution), max(2, len(kept) // 2)
            )
            broken = broken_windows(
                self._tables, program.positions, solution, -(-len(program.positions) // 2)
            )
            new_rows = self._new_rows(program, solution)
            if not added and not broken and not new_rows:
                return
            steps = {*kept, *added}
            windows = {*program.binding_windows(), *broken, *_cut_in_two((*kept, end), added)}
            rows = [*program.binding_rows(), *new_rows]

    def _new_rows(self, program: JointProgram, solution: JointSolution) -> list[RoundedRow]:
        found: list[RoundedRow] = []
        for k, position in enumerate(program.positions):
            if solution.multipliers[k] > 0.0:
                held = solution.held[k]
                found += rounded_rows(self._tables, position, self._budget, held, SETTINGS.rows_a_step)
        return found


def worst_steps(tables: StepTables, budget_bytes: int, answer: JointAnswer, most: int) -> list[int]:
    """Steps at which an answer is above the budget, worst first, apart from each other, without its own."""
    program = answer.program
    profile = joint_profile(tables, program.positions, answer.solution)
    is_above = tables.profile > budget_bytes
    excess = np.where(is_above, profile - budget_bytes * (1.0 + NEARLY), 0.0)
    excess[list(program.positions)] = 0.0
    found: list[int] = []
    while len(found) < most and float(excess.max(initial=0.0)) > 0.0:
        worst = int(excess.argmax())
        found.append(worst)
        excess[max(worst - SETTINGS.apart, 0) : worst + SETTINGS.apart + 1] = 0.0
    return found


def _cut_in_two(ends: Sequence[int], added: Sequence[int]) -> list[Window]:
    """The windows between neighbours that new steps lie in."""
    return [
        (start, end) for start, end in pairwise(ends) if any(start < position < end for position in added)
    ]
