"""Lower bounds on the time of a plan: what recomputation must cost, whoever plans it, in one order of first executions.

Look at the moment when node p runs for the first time. A storage that was made before and is needed at p or later is
either held across p, or its maker runs again later; a node that runs again needs each of its operands held across p
or made again as well; and what is held must fit beside what p makes and its scratch bytes. The least seconds run
again under these rules bound every plan from below, for each p and, stronger, for several of them at once: what they
ask for between each other adds up.

Which steps count is found out by carrying out the answer so far: where its bytes are above the budget, it needs a row.
Three passes: one step at a time, then several together, both in fractions; and last, when asked to be thorough, in
whole numbers, which lifts the bound to what those steps really cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from neaptide.outcome import LimitGuard
from neaptide.planner.recompute.joint_lifetimes import joint_lifetimes
from neaptide.planner.recompute.joint_program import JointProgram, JointSolution
from neaptide.planner.recompute.step_tables import StepTables
from neaptide.schedule.evaluate import Ints
from neaptide.schedule.problem import StepProblem

_GRID: Final = 16
_COARSE_GRID: Final = 6
_FATTEST: Final = 8
_FIRST_BACKWARD: Final = 12
# Bytes above the budget by less than this share ask for no row.
_TOLERATED: Final = 1e-4
# A bound that rises by less than this share has not risen.
_RISE: Final = 1e-5
# Steps this close to one that has been looked at say the same.
_APART: Final = 6
# A step counts while it has this share of the largest multiplier.
_BINDING: Final = 1e-4


@dataclass(frozen=True, slots=True)
class _Effort:
    """How far to look.

    Attributes:
        misses: steps that bring nothing before one alone is settled.
        joint_misses: the same for several together.
        most_steps: at once.
        most_variables: of a program with several steps.
        whole_nodes: of branch and bound; none without it.
        whole_variables: of the largest program that is solved in whole numbers.
        level: above the bound in fractions, as a share of it, up to which whole numbers are looked at.
    """

    misses: int
    joint_misses: int
    most_steps: int
    most_variables: int
    whole_nodes: int
    whole_variables: int
    level: float


_USUAL: Final = _Effort(6, 3, 4, 8000, 1, 3000, 0.005)
_THOROUGH: Final = _Effort(16, 8, 5, 16000, 400, 8000, 0.02)


@dataclass(frozen=True, slots=True)
class RecomputeBound:
    """What recomputation costs at least.

    Attributes:
        seconds: no plan with this order of first executions runs shorter, recomputation included.
        node: at whose first execution that is decided; the dearest of several; -1 when nothing has to run again.
        is_infeasible: no plan with this order of first executions is within the budget.
        programs: linear and mixed-integer programs solved.
    """

    seconds: float
    node: int
    is_infeasible: bool
    programs: int


def recompute_bound(
    step: StepProblem,
    budget_bytes: int,
    *,
    sequence: Sequence[int] | None = None,
    guard: LimitGuard | None = None,
    thorough: bool = False,
) -> RecomputeBound:
    """The largest bound over choices of steps. O(programs solved x one sparse program of a few times the graph's size).

    Args:
        step: the program.
        budget_bytes: highest peak with workspace.
        sequence: whose order of first executions counts; by default program order.
        guard: its time limit ends the search early; what has been found by then holds.
        thorough: look at more steps, at more of them together, and in whole numbers.
    """
    tables = StepTables(step, sequence)
    if not (tables.profile > budget_bytes).any():
        return RecomputeBound(step.baseline_seconds, -1, is_infeasible=False, programs=0)
    return _Search(tables, budget_bytes, guard, _THOROUGH if thorough else _USUAL).run(thorough=thorough)


@dataclass(frozen=True, slots=True)
class _Answer:
    """A program that has been solved in fractions."""

    program: JointProgram
    solution: JointSolution


class _Search:
    """The steps whose program gives the largest bound."""

    def __init__(
        self, tables: StepTables, budget_bytes: int, guard: LimitGuard | None, effort: _Effort
    ) -> None:
        self.tables = tables
        self.budget = budget_bytes
        self.guard = guard
        self.effort = effort
        self.is_above = tables.profile > budget_bytes
        self.programs = 0
        self.tried: dict[tuple[int, ...], float] = {}
        self.best: _Answer | None = None
        self.refuted_at = -1

    def run(self, *, thorough: bool) -> RecomputeBound:
        """One step at a time, several together, whole numbers."""
        self._look_at_operands()
        self._look_at_single_steps(_choice(self.tables, self.is_above, few=not thorough))
        self._look_at_several()
        baseline = self.tables.step.baseline_seconds
        if self.refuted_at >= 0:
            node = int(self.tables.order[self.refuted_at])
            return RecomputeBound(float("inf"), node, is_infeasible=True, programs=self.programs)
        if self.best is None:
            return RecomputeBound(baseline, -1, is_infeasible=False, programs=self.programs)
        solution = self.best.solution
        extra = max(solution.bound, self._whole(self.best) if solution.bound > 0.0 else 0.0)
        if extra <= 0.0:
            return RecomputeBound(baseline, -1, is_infeasible=False, programs=self.programs)
        dearest = int(np.argmax(solution.multipliers))
        node = int(self.tables.order[self.best.program.positions[dearest]])
        return RecomputeBound(baseline + extra, node, is_infeasible=False, programs=self.programs)

    def _goes_on(self) -> bool:
        return self.refuted_at < 0 and (self.guard is None or self.guard.check_now() is None)

    def _look_at_operands(self) -> None:
        """Refute a budget that a step is above with what has to be there: operands, and what cannot be made again."""
        tables = self.tables
        nodes, storages = tables.need
        owned = tables.creator < 0
        is_stuck = ~owned & ~tables.may_repeat[tables.creator]
        at = np.zeros(len(tables.order) + 2, dtype=np.int64)
        loose = ~is_stuck[storages] & ~owned[storages]
        np.add.at(at, tables.position[nodes[loose]], tables.sizes[storages[loose]])
        last = np.where(tables.is_output, len(tables.order) - 1, -1)
        np.maximum.at(last, storages, tables.position[nodes])
        stuck = np.flatnonzero(is_stuck & (last > tables.position[tables.creator]))
        change = np.zeros_like(at)
        np.add.at(change, tables.position[tables.creator[stuck]] + 1, tables.sizes[stuck])
        np.add.at(change, last[stuck] + 1, -tables.sizes[stuck])
        at = (at + np.cumsum(change))[: len(tables.order)] + tables.fixed_bytes[tables.order]
        if int(at.max(initial=0)) > self.budget:
            self.refuted_at = int(at.argmax())

    def _look_at_single_steps(self, choice: Sequence[int]) -> None:
        for position in choice:
            self._look((position,))
        misses = 0
        while self._goes_on() and misses < self.effort.misses:
            following = self._next_single()
            if following is None:
                return
            misses = 0 if self._look((following,)) else misses + 1

    def _next_single(self) -> int | None:
        """The worst step of the best answer that is new; then those beside its own, with other scratch bytes."""
        best = self.best
        if best is None:
            return None
        place = best.program.positions[0]
        worst = [p for p in self._worst_steps(best) if (p,) not in self.tried]
        beside = [p for p in (place - 2, place - 1, place + 1, place + 2) if self._is_new(p)]
        return next(iter([*worst[:1], *beside]), None)

    def _is_new(self, position: int) -> bool:
        return (
            0 <= position < len(self.is_above)
            and bool(self.is_above[position])
            and (position,) not in self.tried
        )

    def _look_at_several(self) -> None:
        misses = 0
        while self._goes_on() and self.best is not None and misses < self.effort.joint_misses:
            positions = self._binding(self.best)
            if len(positions) >= self.effort.most_steps:
                return
            size = self.best.program.size / max(len(positions), 1)
            if size * (len(positions) + 1) ** 2 > self.effort.most_variables:
                return
            following = self._next_several(self.best, positions)
            if following is None:
                return
            misses = 0 if self._look(following) else misses + 1

    def _next_several(self, best: _Answer, positions: tuple[int, ...]) -> tuple[int, ...] | None:
        """The steps that bind with one more: in turn the worst of the best answer, and the dearest by themselves."""
        alone = [p[0] for p in sorted(self.tried, key=lambda p: -self.tried[p]) if len(p) == 1]
        alone = [p for p in alone if min(abs(p - q) for q in positions) >= _APART]
        worst = self._worst_steps(best)
        mixed = [p for pair in zip(worst, alone, strict=False) for p in pair] or [*worst, *alone]
        for position in mixed:
            together = tuple(sorted({*positions, position}))
            if together not in self.tried:
                return together
        return None

    def _worst_steps(self, answer: _Answer) -> list[int]:
        """Steps at which an answer is above the budget, worst first, apart from each other and from its own."""
        program = answer.program
        profile = joint_lifetimes(self.tables, program.positions, answer.solution).profile
        excess = np.where(self.is_above, profile - self.budget * (1.0 + _TOLERATED), 0.0)
        excess[list(program.positions)] = 0.0
        found: list[int] = []
        while len(found) < self.effort.misses and float(excess.max(initial=0.0)) > 0.0:
            worst = int(excess.argmax())
            found.append(worst)
            excess[max(worst - _APART, 0) : worst + _APART + 1] = 0.0
        return found

    def _binding(self, answer: _Answer) -> tuple[int, ...]:
        """The steps of an answer whose bytes bind: without the others its bound is the same."""
        multipliers = answer.solution.multipliers
        least = _BINDING * max(multipliers, default=0.0)
        pairs = zip(answer.program.positions, multipliers, strict=True)
        return tuple(p for p, multiplier in pairs if multiplier > least)

    def _look(self, positions: tuple[int, ...]) -> bool:
        """Solve the program of some steps; whether its bound is the largest so far."""
        if not self._goes_on() or positions in self.tried:
            return False
        program = JointProgram(self.tables, positions, self.budget)
        solution = program.relax()
        self.programs += 1
        self.tried[positions] = solution.bound
        if solution.is_infeasible:
            self.refuted_at = positions[-1]
            return False
        most = 0.0 if self.best is None else self.best.solution.bound
        if self.best is None or solution.bound > most * (1.0 + _RISE):
            self.best = _Answer(program, solution)
            return True
        return False

    def _whole(self, answer: _Answer) -> float:
        """The bound of an answer in whole numbers, without the steps that do not bind."""
        effort = self.effort
        if not effort.whole_nodes or answer.program.size > effort.whole_variables or not self._goes_on():
            return 0.0
        below = answer.solution.bound * (1.0 + effort.level)
        time_s = None if self.guard is None else self.guard.remaining_s()
        self.programs += 1
        return answer.program.solve_whole(below, nodes=effort.whole_nodes, time_s=time_s).bound


def _choice(tables: StepTables, is_above: np.typing.NDArray[np.bool_], *, few: bool) -> list[int]:
    """Positions to start from: where the backward begins and the highest; or more of them, and an even grid."""
    above: Ints = np.flatnonzero(is_above)
    highest = above[np.argsort(-tables.profile[above], kind="stable")]
    phases = tables.step.phases
    first = next((k for k, node in enumerate(tables.order.tolist()) if phases[node] == "backward"), None)
    begin = [] if first is None else above[(above >= first - 1) & (above < first + _FIRST_BACKWARD)].tolist()
    grid = above[np.linspace(0, len(above) - 1, _COARSE_GRID if few else _GRID).astype(np.int64)].tolist()
    if few:
        return list(dict.fromkeys([*begin[:2], *highest[:1].tolist(), *grid]))
    return list(dict.fromkeys([*begin, *highest[:_FATTEST].tolist(), *grid]))
