"""The portfolio: several strategies on several orders, the best answer so far, and the reason for stopping."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias

from neaptide.outcome import LimitGuard, Limits, Outcome, Termination, TerminationReason
from neaptide.planner.failed_stages import attempt
from neaptide.planner.objective import PlannedSequence, PlanningProblem
from neaptide.planner.recompute.bounds.certificate import RecomputeBound, recompute_bound
from neaptide.planner.recompute.chain.known import KnownChains
from neaptide.planner.recompute.curve.least_memory import least_memory
from neaptide.planner.recompute.recomputations import repetition_pairs
from neaptide.planner.strategies import strategy
from neaptide.planner.strategies.block_dp import has_many_alike
from neaptide.planner.strategies.greedy_recompute import descent_guard, solve_with_noise
from neaptide.schedule.problem import StepProblem
from neaptide.units import format_bytes

# Restarts with noisy prices: many where they cost nothing, few on large graphs.
_RESTART_NODES: Final = 2000
_MOST_RESTARTS: Final = 16
_NOISE: Final = 0.5
_SLACKS: Final = (0.0, 0.1, 0.5, 1.5)
# States and cuts of the search for a better order, times squared nodes: about a second.
_ORDER_SQUARED_WORK: Final = 500_000_000
# Another order counts when the peak falls by a hundredth.
_WORTHWHILE: Final = 0.99
# A plan this close to the proved least time, as a share of the baseline's, is not searched further.
_CLOSE_ENOUGH: Final = 1e-4
# One this close needs no search on the whole graph beside the one by blocks.
_NEAR: Final = 5e-4
# One this far above it calls for the program over blocks, which also makes things a third time, and for more polish.
_FAR: Final = 3e-3
# Changes tried by a descent from a whole order, and by the two polishes of a plan.
_DESCENT_TRIES: Final = 20_000
_RUIN_TRIES: Final = 15_000
_PRICES_TRIES: Final = 15_000
# A polish takes at most one of so many parts of the work that is left.
_SHARES: Final = 3
# A plan of another order that runs this much more again may still overtake the best.
_NOT_FAR_BEHIND: Final = 1.25
# Turns of ruin and prices; one that closes less than this share of the gap is the last.
_MOST_TURNS: Final = 6
_CLOSED: Final = 0.05
# What the first look at prices may take.
_QUICK_TRIES: Final = 2500
# The bound is right to about this share; a plan within it is the fastest.
_PROVED: Final = 1e-8
# A bound that is above a plan by more is wrong.
_CONTRADICTION: Final = 1e-6

STAGES: Final = (
    "early_updates",
    "best_order",
    "greedy_recompute",
    "block_dp",
    "closure",
    "least_memory",
    "lagrangian",
    "restarts",
    "ruin_recreate",
)
"""What the portfolio tries beside program order."""


def plan_sequence(
    step: StepProblem,
    budget_bytes: int,
    limits: Limits,
    *,
    seed: int | None = None,
    interrupt: threading.Event | None = None,
    check: Callable[[Sequence[int]], None] | None = None,
    without: Collection[str] = (),
) -> Outcome[PlannedSequence]:
    """The fastest sequence found whose peak with workspace is within a budget, else the one with the lowest peak.

    Never above the larger of budget and baseline. The same under the same work limit and seed, whatever the
    machine, when there is no time limit; work is counted in changes tried.

    Args:
        step: the program.
        budget_bytes: highest peak with workspace.
        limits: time, work and seed of the search.
        seed: overrides `limits.seed`.
        interrupt: set it to stop; the best answer so far is returned.
        check: raises for a sequence that is not legal: the strategy that gave it has failed.
        without: stages to leave out, of `STAGES`, to measure what they earn.

    Returns:
        An outcome with a value always. `OPTIMAL`: within the budget, and no sequence with its order of first
        executions is faster. `FEASIBLE`: within it; the bound holds for that order. `INFEASIBLE`: a lower bound
        proves that no sequence is; `NO_SOLUTION_FOUND`: none was found; with both the value is the sequence with
        the lowest peak found.
    """
    chosen = limits if seed is None else replace(limits, seed=seed)
    return _Portfolio(step, budget_bytes, chosen, interrupt, check, frozenset(without)).run()


_Solve: TypeAlias = Callable[[PlanningProblem, Limits, threading.Event | None], Outcome[PlannedSequence]]


class _Portfolio:
    def __init__(
        self,
        step: StepProblem,
        budget_bytes: int,
        limits: Limits,
        interrupt: threading.Event | None,
        check: Callable[[Sequence[int]], None] | None,
        without: frozenset[str],
    ) -> None:
        self.step = step
        self.budget = budget_bytes
        self.limits = limits
        self.interrupt = interrupt
        self.check = check
        self.without = without
        self.guard = LimitGuard(limits, interrupt)
        self.best: PlannedSequence | None = None
        self.known: set[tuple[int, int]] = set()
        self.chains = KnownChains()
        self._by_order: dict[tuple[int, ...], PlannedSequence] = {}
        self._bounds: dict[tuple[int, ...], RecomputeBound] = {}

    def run(self) -> Outcome[PlannedSequence]:
        problem = PlanningProblem(self.step, self.budget, chains=self.chains)
        baseline = self._note(strategy("program_order")(problem, self._left(), self.interrupt))
        if not self.step.node_count:
            return self._outcome()
        starts = [problem]
        if not self._is_free():
            if "early_updates" not in self.without:
                early = self._try("early_updates", problem)
                if early.sequence != baseline.sequence:
                    # Lower where the gradients pile up; usually the better order, so it goes first.
                    starts.insert(0, replace(problem, start=early.sequence))
            self._order_again(starts)
        for start in starts:
            self._search("greedy_recompute", start, _DESCENT_TRIES)
        is_blocked = "block_dp" not in self.without and self._goes_on() and self._gap() > _NEAR
        by_blocks = is_blocked and self._has_many_alike(starts[0])
        if by_blocks:
            # What is solved once for all blocks that are alike costs little, and often leaves nothing to win.
            self._search("block_dp", starts[0])
        if self._is_met():
            self._polish("lagrangian", _QUICK_TRIES)
        for start in starts:
            if self._gap() > _NEAR:
                self._search("closure", start)
        self._find_floor()
        if self.budget < self.step.lower_bound_bytes:
            # Nothing can meet it; what has been found says how far one gets.
            return self._outcome()
        if self._is_met() and self._gap() > _NEAR:
            self._polish("lagrangian", _PRICES_TRIES, all_orders=self._gap() > _FAR)
        if self._gap() > _FAR:
            if not by_blocks:
                self._search("block_dp", starts[0])
            self._restart(starts)
        self._alternate()
        return self._outcome()

    def _alternate(self) -> None:
        """Ruin and prices in turn: each finds repetitions that the other would not, until both find little."""
        for _ in range(_MOST_TURNS):
            if self._gap() <= _FAR or not self._goes_on():
                return
            before = self._gap()
            self._polish("ruin_recreate", _RUIN_TRIES)
            self._polish("lagrangian", _PRICES_TRIES)
            if self._gap() > (1.0 - _CLOSED) * before:
                return

    def _polish(self, name: str, work: int | None = None, *, all_orders: bool = False) -> None:
        """Try a strategy on the best sequence so far, with all repetitions that have been seen at hand.

        With `all_orders`, on the best of each order of first executions that is not far behind.
        """
        if self.best is None:
            return
        if work is not None and self.limits.work is not None:
            # Something is to be left for the others.
            work = min(work, (self.limits.work - self.guard.work) // _SHARES)
        first = self._extra(self.best)
        plans = sorted(self._by_order.values(), key=lambda plan: plan.rank(self.budget))
        for plan in plans if all_orders else plans[:1]:
            if not self._is_done() and self._extra(plan) <= _NOT_FAR_BEHIND * first:
                enough = self._bound().seconds + _CLOSE_ENOUGH * self.step.baseline_seconds
                start = PlanningProblem(
                    self.step,
                    self.budget,
                    plan.sequence,
                    known=frozenset(self.known),
                    enough_seconds=enough,
                    chains=self.chains,
                )
                self._search(name, start, work)

    def _extra(self, plan: PlannedSequence) -> float:
        """Seconds that a plan runs again; without end when it is above the budget."""
        if plan.peak_with_workspace_bytes > self.budget:
            return float("inf")
        return plan.seconds - self.step.baseline_seconds

    def _order_again(self, starts: list[PlanningProblem]) -> None:
        """Where the bound for orders says that a better one may exist, look for it; it takes the place of the last."""
        if "best_order" in self.without:
            return
        first = starts[0]
        lowest = PlannedSequence.evaluate(self.step, first.first_sequence(), "").peak_with_workspace_bytes
        if self.step.order_lower_bound_bytes > max(_WORTHWHILE * lowest, self.budget) or not self._goes_on():
            return
        limits = self._left()
        work = _ORDER_SQUARED_WORK // max(self.step.node_count, 1) ** 2
        if limits.work is not None:
            work = min(limits.work // 4, work)
        found = self._ask("best_order", first, replace(limits, work=work))
        if found.peak_with_workspace_bytes < _WORTHWHILE * lowest:
            starts.insert(0, replace(first, start=found.sequence))
            del starts[2:]

    def _restart(self, starts: list[PlanningProblem]) -> None:
        """Noisy searches from the orders in turn, until time, work or their number is used up."""
        if "restarts" in self.without:
            return
        restarts = min(_MOST_RESTARTS, _RESTART_NODES // max(self.step.node_count, 1))
        for number in range(restarts):
            if self._is_done() or not self._goes_on():
                return
            inner = descent_guard(self.guard, self.step.node_count, self.interrupt)
            limits = replace(inner.limits, seed=self.limits.seed * _MOST_RESTARTS + number)
            start = starts[number // len(_SLACKS) % len(starts)]
            slack = _SLACKS[number % len(_SLACKS)]
            noisy = partial(solve_with_noise, noise=_NOISE, slack=slack)
            self._ask("greedy_recompute with noise", start, limits, noisy)

    def _find_floor(self) -> None:
        """Where nothing has met the budget, search for the lowest peak: the same search, whatever the budget.

        So what is said to be out of reach is so for every budget, and a lower one does not end with a higher floor.
        """
        if self._is_met() or not self._goes_on() or "least_memory" in self.without:
            return
        known = () if self.best is None else (self.best,)

        def lowest(
            _: PlanningProblem, limits: Limits, interrupt: threading.Event | None
        ) -> Outcome[PlannedSequence]:
            return least_memory(
                self.step, math.inf, limits, interrupt, known=known, check=self.check, within=self.budget
            )

        self._ask("least_memory", PlanningProblem(self.step, self.budget), self._left(), lowest)

    def _search(self, name: str, problem: PlanningProblem, work: int | None = None) -> None:
        """Try a strategy, unless nothing is left to win or to spend."""
        if name not in self.without and not self._is_done() and self._goes_on():
            self._try(name, problem, work)

    def _try(self, name: str, problem: PlanningProblem, work: int | None = None) -> PlannedSequence:
        limits = self._left()
        if work is not None:
            limits = replace(limits, work=work if limits.work is None else min(work, limits.work))
        return self._ask(name, problem, limits)

    def _ask(
        self, name: str, problem: PlanningProblem, limits: Limits, solve: _Solve | None = None
    ) -> PlannedSequence:
        """What a strategy finds; where it fails, the sequence that it was started from."""

        def found() -> PlannedSequence:
            outcome = (solve or strategy(name))(problem, limits, self.interrupt)
            self._check_best(outcome.require())
            return self._note(outcome)

        def begun() -> PlannedSequence:
            return PlannedSequence.evaluate(self.step, problem.first_sequence(), name)

        return attempt(f"the strategy {name}", found, begun)

    def _check_best(self, found: PlannedSequence) -> None:
        """Whether a plan that is better than the best is legal."""
        if self.check is not None and (
            self.best is None or found.rank(self.budget) < self.best.rank(self.budget)
        ):
            self.check(found.sequence)

    def _note(self, outcome: Outcome[PlannedSequence]) -> PlannedSequence:
        self.guard.exhausted(outcome.work)
        found = outcome.require()
        self.known.update(repetition_pairs(found.sequence, self.step.node_count))
        order = tuple(dict.fromkeys(found.sequence))
        other = self._by_order.get(order)
        if other is None or found.rank(self.budget) < other.rank(self.budget):
            self._by_order[order] = found
        if self.best is None or found.rank(self.budget) < self.best.rank(self.budget):
            self.best = found
        return found

    def _left(self) -> Limits:
        """What is left of the limits, for one strategy."""
        work = None if self.limits.work is None else max(self.limits.work - self.guard.work, 0)
        return Limits(self.guard.remaining_s(), work, self.limits.seed)

    def _has_many_alike(self, problem: PlanningProblem) -> bool:
        return attempt("the search for blocks", lambda: has_many_alike(problem), lambda: False)

    def _goes_on(self) -> bool:
        return self.guard.check_now() is None

    def _is_met(self) -> bool:
        """Whether the best one is within the budget."""
        return self.best is not None and self.best.peak_with_workspace_bytes <= self.budget

    def _is_free(self) -> bool:
        """Whether the budget is met by an order alone: nothing can be faster."""
        return self.best is not None and self._is_met() and len(self.best.sequence) == self.step.node_count

    def _bound(self) -> RecomputeBound:
        """The least time of the best sequence's order of first executions."""
        assert self.best is not None
        order = tuple(dict.fromkeys(self.best.sequence))
        if order not in self._bounds:
            bound = attempt(
                "the bound of the least time",
                lambda: recompute_bound(self.step, self.budget, sequence=order, guard=self.guard),
                lambda: RecomputeBound(self.step.baseline_seconds, 0, False, 0),
            )
            self._bounds[order] = bound
            self.known.update(bound.repetitions)
        return self._bounds[order]

    def _gap(self) -> float:
        """How far above the proved least time the best one is, as a share of the baseline's; without end if too high."""
        best = self.best
        if best is None or not self._is_met():
            return float("inf")
        if self._is_free() or not self.step.baseline_seconds:
            return 0.0
        return (best.seconds - self._bound().seconds) / self.step.baseline_seconds

    def _is_done(self) -> bool:
        """Whether nothing can be faster, or not by an amount that matters."""
        return self._gap() <= _CLOSE_ENOUGH

    def _outcome(self) -> Outcome[PlannedSequence]:
        best = self.best
        assert best is not None
        stopped = self.guard.check_now()
        limit = stopped if stopped in {"time", "work"} else None
        peak, bound = best.peak_with_workspace_bytes, self.step.lower_bound_bytes
        if peak <= self.budget:
            if self._is_free():
                ending = Termination(
                    TerminationReason.OPTIMAL, None, "met by order alone", best.seconds, best.seconds
                )
            else:
                ending = self._within_budget(best, limit, interrupted=stopped == "interrupt")
        elif self.budget < bound:
            detail = f"no schedule of these operations needs less than {format_bytes(bound)}"
            ending = Termination(TerminationReason.INFEASIBLE, None, detail, peak, bound)
        else:
            reason = (
                TerminationReason.INTERRUPTED
                if stopped == "interrupt"
                else TerminationReason.NO_SOLUTION_FOUND
            )
            detail = f"the lowest peak found is {format_bytes(peak)}"
            ending = Termination(reason, limit, detail, peak, bound)
        return Outcome(best, ending, self.guard.seconds(), self.guard.work)

    def _within_budget(self, best: PlannedSequence, limit: str | None, *, interrupted: bool) -> Termination:
        """How a search ended that met its budget by recomputation."""
        return bounded_ending(self.step, best, self._bound(), limit, interrupted=interrupted)


def bounded_ending(
    step: StepProblem, found: PlannedSequence, proved: RecomputeBound, limit: str | None, *, interrupted: bool
) -> Termination:
    """How a search ended that met its budget by recomputation.

    Args:
        step: the program.
        found: a plan within the budget.
        proved: what is known of the budget and the plan's own order of first executions.
        limit: that the search ran into.
        interrupted: whether the user stopped it.
    """
    open_reason = TerminationReason.INTERRUPTED if interrupted else TerminationReason.FEASIBLE
    above = found.seconds - proved.seconds
    if proved.is_infeasible or above < -_CONTRADICTION * step.baseline_seconds:
        detail = "what was proved contradicts this plan, so no bound is given: a fault of neaptide, please report it"
        return Termination(open_reason, limit, detail, found.seconds)
    if above <= _PROVED * step.baseline_seconds:
        reason, limit = TerminationReason.OPTIMAL, None
    else:
        reason = open_reason
    detail = "the bound holds for this order of first executions"
    return Termination(reason, limit, detail, found.seconds, min(proved.seconds, found.seconds))
