"""What every search for recomputations stands on, whether for one budget, for many, or for the lowest peak.

It runs strategies on one step under one set of limits. It charges their work, checks what they find, and goes on without
one that fails. The searches differ in what they ask next: `portfolio` for one budget, `curve.search` for many.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from neaptide.outcome import LimitGuard, Limits, Termination, TerminationReason
from neaptide.planner.failed_stages import attempt
from neaptide.planner.objective import PlannedSequence, PlanningProblem
from neaptide.planner.recompute.bounds.certificate import RecomputeBound
from neaptide.planner.recompute.chain.known import KnownChains
from neaptide.planner.recompute.settings import SETTINGS
from neaptide.planner.strategies import Strategy, strategy
from neaptide.planner.strategies.program_order import baseline
from neaptide.schedule.problem import StepProblem


class RecomputeEngine:
    """One step, one set of limits, and the strategies that run under them.

    Attributes:
        step: the problem.
        order: of first executions that every plan keeps to; None where a search may choose one.
        guard: of all work.
        chains: of blocks that have been found in the step.
        check: raises for a sequence that is not legal.
        interrupt: set to stop.
    """

    def __init__(
        self,
        step: StepProblem,
        limits: Limits,
        interrupt: threading.Event | None = None,
        *,
        order: tuple[int, ...] | None = None,
        check: Callable[[Sequence[int]], None] | None = None,
    ) -> None:
        """Nothing has been searched yet.

        Args:
            step: the problem.
            limits: of all that is run.
            interrupt: set it to stop.
            order: of first executions that every plan keeps to.
            check: raises for a sequence that is not legal: the strategy that gave it has failed.
        """
        self.step = step
        self.order = order
        self.guard = LimitGuard(limits, interrupt)
        self.chains = KnownChains()
        self.check, self.interrupt = check, interrupt
        self._limits = limits

    def first_plan(self) -> PlannedSequence:
        """The plan that there is in any case: program order, or the order that is fixed."""
        if self.order is None:
            return baseline(self.step)
        return PlannedSequence.evaluate(self.step, self.order, "program_order")

    def problem(self, budget: int, start: tuple[int, ...] | None = None) -> PlanningProblem:
        """The step with a budget, from some sequence; from the first plan by default."""
        return PlanningProblem(self.step, budget, start or self.order, chains=self.chains)

    def run(
        self,
        name: str,
        problem: PlanningProblem,
        *,
        tries: int | None = None,
        seed: int | None = None,
        solve: Strategy | None = None,
        counts: Callable[[PlannedSequence], bool] | None = None,
    ) -> PlannedSequence | None:
        """What a strategy finds; None where it fails.

        Args:
            name: of the strategy.
            problem: what it is asked.
            tries: of its work, at most; by default all that is left.
            seed: of its choices; by default that of the limits.
            solve: in place of the strategy of that name.
            counts: whether a plan is of interest; only such plans are checked. By default all are.
        """
        limits = self.left(tries, seed)

        def found() -> PlannedSequence:
            outcome = (solve or strategy(name))(problem, limits, self.interrupt)
            self.guard.exhausted(outcome.work)
            plan = outcome.require()
            if self.check is not None and (counts is None or counts(plan)):
                self.check(plan.sequence)
            return plan

        return attempt(f"the strategy {name}", found, lambda: None)

    def run_anew(self, name: str, problem: PlanningProblem, solve: Strategy) -> PlannedSequence | None:
        """What a search finds under the whole limit of work, in the time that is left; None where it fails."""
        limits = Limits(self.guard.remaining_s(), self._limits.work, self._limits.seed)

        def found() -> PlannedSequence:
            outcome = solve(problem, limits, self.interrupt)
            self.guard.exhausted(outcome.work)
            return outcome.require()

        return attempt(f"the strategy {name}", found, lambda: None)

    def left(self, tries: int | None = None, seed: int | None = None) -> Limits:
        """What is left of the limits, for one search of so many tries."""
        work = None if self._limits.work is None else max(self._limits.work - self.guard.work, 0)
        if tries is not None:
            work = tries if work is None else min(work, tries)
        return Limits(self.guard.remaining_s(), work, self._limits.seed if seed is None else seed)

    def part_of_work(self, most: int) -> int:
        """Tries for one search among several, which must leave something for the others."""
        if self._limits.work is None:
            return most
        return min(most, (self._limits.work - self.guard.work) // SETTINGS.parts)

    @property
    def seed(self) -> int:
        """Of the limits."""
        return self._limits.seed

    def goes_on(self) -> bool:
        """Whether neither time nor work is used up, nor anybody has interrupted."""
        return self.guard.check_now() is None

    def is_cut(self) -> bool:
        """Whether time is used up, or somebody has interrupted."""
        return self.guard.check_now() in {"time", "interrupt"}

    def is_half_gone(self) -> bool:
        """Whether half of the time is used up."""
        most = self._limits.time_s
        return most is not None and self.guard.seconds() > most / 2

    def pays(self, seconds: float) -> bool:
        """Whether it is worth the time of a search to save so many seconds of each run."""
        return self._limits.pays(seconds, self.guard.seconds())

    def ended(self) -> tuple[str | None, TerminationReason]:
        """The limit that was reached, if any, and the reason for an end at which nothing is proved."""
        stopped = self.guard.check_now()
        reason = TerminationReason.INTERRUPTED if stopped == "interrupt" else TerminationReason.FEASIBLE
        return stopped if stopped in {"time", "work"} else None, reason


def ending_by_order_alone(found: PlannedSequence) -> Termination:
    """How a search ended that met its budget without recomputation: nothing is faster."""
    return Termination(TerminationReason.OPTIMAL, None, "met by order alone", found.seconds, found.seconds)


def bounded_ending(
    step: StepProblem,
    found: PlannedSequence,
    proved: RecomputeBound,
    limit: str | None,
    unproved: TerminationReason,
) -> Termination:
    """How a search ended that met its budget by recomputation.

    Args:
        step: the program.
        found: a plan within the budget.
        proved: what is known of the budget and the plan's own order of first executions.
        limit: that the search ran into.
        unproved: the reason where the plan is above its bound.
    """
    above = found.seconds - proved.seconds
    if proved.is_infeasible or above < -SETTINGS.contradiction * step.baseline_seconds:
        detail = "what was proved contradicts this plan, so no bound is given: a fault of neaptide, please report it"
        return Termination(unproved, limit, detail, found.seconds)
    bound = min(proved.seconds, found.seconds)
    detail = "the bound holds for this order of first executions"
    if above <= SETTINGS.proved * step.baseline_seconds:
        return Termination(TerminationReason.OPTIMAL, None, detail, found.seconds, bound)
    return Termination(unproved, limit, detail, found.seconds, bound)
