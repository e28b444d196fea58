"""What recomputation costs at least under every budget: the upper envelope of lines from a few linear programs.

In the certificate's program at one step the budget is in one right-hand side only. A solution of the dual stays
feasible under every other budget: it is a line, seconds against bytes, and no budget costs less than the line says.
For one step the least seconds are a convex, falling function of the budget, so a line that is not made under a budget is
below what its step says there. Certificates of single budgets, which look at several steps together, hold for all smaller
budgets as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from neaptide.outcome import LimitGuard
from neaptide.planner.recompute.bounds.certificate import RecomputeBound, bound_within, first_positions
from neaptide.planner.recompute.bounds.floor import floor_bound
from neaptide.planner.recompute.bounds.joint_program import JointProgram
from neaptide.planner.recompute.bounds.step_tables import StepTables
from neaptide.schedule.problem import StepProblem

_CHOOSERS: Final = 4  # budgets that choose steps
_PROGRAMS: Final = 4  # for a budget more


@dataclass(frozen=True, slots=True)
class BoundLine:
    """A line below the seconds that must run again, made at the step of one position under one budget.

    Its slope, seconds per byte more, is never positive.
    """

    position: int
    budget_bytes: int
    seconds: float
    slope: float

    def at(self, budget_bytes: int) -> float:
        """Seconds that run again at least under another budget; may be negative."""
        return self.seconds + self.slope * (budget_bytes - self.budget_bytes)


class BoundEnvelope:
    """Lower bounds on the seconds of plans with one order of first executions, for all budgets.

    Attributes:
        floor_bytes: no plan with this order has a lower peak.
        lines: that are known.
    """

    def __init__(
        self, step: StepProblem, sequence: Sequence[int] | None = None, *, guard: LimitGuard | None = None
    ) -> None:
        """Nothing is proved yet but that every node runs once. The guard ends the search for proofs; what is found holds."""
        self.step = step
        self.floor_bytes = step.lower_bound_bytes
        self.lines: list[BoundLine] = []
        self._guard = guard
        self._tables = StepTables(step, sequence)
        self._certificates: dict[int, RecomputeBound] = {}
        self._asked: set[tuple[int, int]] = set()  # positions, with budgets

    def seconds(self, budget_bytes: int) -> float:
        """No plan within a budget is faster; infinite when it is proved that there is none. O(lines)."""
        if budget_bytes < self.floor_bytes:
            return float("inf")
        least = self.step.baseline_seconds + max((line.at(budget_bytes) for line in self.lines), default=0.0)
        known = (c.seconds for budget, c in self._certificates.items() if budget >= budget_bytes)
        return max(least, self.step.baseline_seconds, *known)

    def prove_floor(self, lowest: int) -> None:
        """Raise `floor_bytes` as far as is proved; a plan with the peak `lowest` is known."""
        self.floor_bytes = max(self.floor_bytes, floor_bound(self._tables, lowest, self._guard))

    def prove(self, budgets: Iterable[int]) -> None:
        """Find lines that are close to the bound at each of some budgets. O(50 + 4 budgets) linear programs."""
        highest = int(self._tables.profile.max(initial=0))
        wanted = sorted({b for b in budgets if self.floor_bytes <= b < highest})
        # Which steps are above a budget depends on it: some budgets choose, those after the lowest a part of the steps.
        for part in range(_CHOOSERS if wanted else 0):
            budget = wanted[part * (len(wanted) - 1) // (_CHOOSERS - 1)]
            is_above = self._tables.profile > budget
            for position in first_positions(self._tables, is_above, is_narrow=part > 0):
                self._ask(position, budget)
        for budget in wanted:
            for _ in range(_PROGRAMS):
                best = max(self.lines, key=lambda line: line.at(budget), default=None)
                if best is None or (best.position, budget) in self._asked:
                    break
                self._ask(best.position, budget)

    def certify(self, budget_bytes: int) -> None:
        """Ask the certificate of one budget, which looks at several steps together."""
        if self._goes_on():
            self.certificate(budget_bytes)

    def certificate(self, budget_bytes: int) -> RecomputeBound:
        """What is proved of one budget at several steps together."""
        if budget_bytes not in self._certificates:
            found = bound_within(self._tables, budget_bytes, self._guard)
            if found.is_infeasible:
                self.floor_bytes = max(self.floor_bytes, budget_bytes + 1)
            self._certificates[budget_bytes] = found
        return self._certificates[budget_bytes]

    def _ask(self, position: int, budget: int) -> None:
        """Solve the program of a step for a budget, unless that has been done."""
        if (position, budget) in self._asked or not self._goes_on():
            return
        self._asked.add((position, budget))
        solution = JointProgram(self._tables, (position,), budget).relax()
        if solution.is_infeasible:
            self.floor_bytes = max(self.floor_bytes, budget + 1)
        elif solution.bound > 0.0:
            self.lines.append(BoundLine(position, budget, solution.bound, -sum(solution.multipliers)))

    def _goes_on(self) -> bool:
        return self._guard is None or self._guard.check_now() is None
