"""The least time within one budget: several strategies, the best answer so far, and the reason for stopping."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection, Sequence
from typing import Final

from neaptide.outcome import Limits, Outcome, Termination, TerminationReason, left_out
from neaptide.planner.failed_stages import Stage
from neaptide.planner.objective import PlannedSequence
from neaptide.planner.recompute.bounds.certificate import RecomputeBound
from neaptide.planner.recompute.curve.least_memory import least_memory
from neaptide.planner.recompute.curve.search import BY_BLOCKS, BY_PRICES, RecomputeSearch
from neaptide.planner.recompute.settings import SETTINGS
from neaptide.schedule.problem import StepProblem
from neaptide.units import format_bytes

_GREEDY: Final = "greedy_recompute"
_FLOOR: Final = "least_memory"
STAGES: Final = ("early_updates", "best_order", _GREEDY, BY_BLOCKS, _FLOOR, BY_PRICES)
"""What the portfolio tries beside program order."""
_NOT_WORTH_IT: Final = "a faster plan would save less than the search for it takes"
_TURNS: Final = 6  # to prices, at most
_DONE: Final = 1e-5  # of the baseline's time: a plan this close to its bound is not searched further
_HELPED: Final = 0.9  # what a turn leaves of the gap at most if it has helped


def plan_sequence(
    step: StepProblem,
    budget_bytes: int,
    limits: Limits,
    *,
    interrupt: threading.Event | None = None,
    order: tuple[int, ...] | None = None,
    check: Callable[[Sequence[int]], None] | None = None,
    known: Sequence[PlannedSequence] = (),
    without: Collection[str] = (),
) -> Outcome[PlannedSequence]:
    """The fastest sequence found whose peak with workspace is within a budget, else the one with the lowest peak.

    The lowest peak is what a search for it alone finds, so it does not depend on the budget: `least_memory`, under a limit
    of work of its own and in at least half of the time. Never above the larger of budget and baseline. The same under the
    same work limit and seed, whatever the machine, when there is no time limit; work is counted in changes tried.

    `OPTIMAL`: within the budget, and no sequence with its order of first executions is faster. `FEASIBLE`: within it; the
    bound holds for that order. `INFEASIBLE`: a lower bound proves that no sequence is; `NO_SOLUTION_FOUND`: none was found;
    with both the value is the sequence with the lowest peak found. Set `interrupt` to get the best so far.
    Every plan keeps to an `order` of first executions that is given. Stages are left out to measure what they earn.
    """
    search = RecomputeSearch(step, limits, interrupt, order=order, check=check)
    return _Portfolio(search, budget_bytes, tuple(known), left_out(without, STAGES)).run()


class _Portfolio:
    def __init__(
        self,
        search: RecomputeSearch,
        budget: int,
        floor_starts: tuple[PlannedSequence, ...],
        without: frozenset[str],
    ) -> None:
        self.search, self.step, self.budget = search, search.step, budget
        self.floor_starts, self.without = floor_starts, without
        self._bounds: dict[tuple[int, ...], RecomputeBound] = {}

    def run(self) -> Outcome[PlannedSequence]:
        if self.step.node_count and not self._is_free():
            self._search()
        guard = self.search.guard
        return Outcome(self.best, self._ending(), guard.seconds(), guard.work)

    @property
    def best(self) -> PlannedSequence:
        """The fastest plan within the budget, else the lowest."""
        return self.search.archive.best(self.budget) or self.search.archive.lowest()

    def _search(self) -> None:
        search = self.search
        may_reorder = search.order is None
        if may_reorder and "early_updates" not in self.without:
            search.hoist_updates()
        # Something within the budget comes first: on a busy machine the search for an order may take all of the time.
        self._try(_GREEDY, search.start, SETTINGS.polish_tries)
        may_reorder = may_reorder and "best_order" not in self.without and not self._is_free()
        if may_reorder and self._goes_on() and search.order_again(self.budget):
            self._try(_GREEDY, search.start, SETTINGS.polish_tries)
        if self._is_met() and not self._pays():
            return
        if self._gap() > SETTINGS.near:
            self._try(BY_BLOCKS, search.start, search.guard.left(2).work)
        if search.order is None and not self._is_met():
            # Greedy gets lower from program order than from hoisted updates on some steps: bert at 25 %, .267 against .287.
            in_order = PlannedSequence.evaluate(self.step, range(self.step.node_count), _GREEDY)
            self._try(_GREEDY, in_order, SETTINGS.polish_tries)
        if not self._is_met():
            self._find_floor()
        if not self._is_out_of_reach():
            self._by_prices()

    def _by_prices(self) -> None:
        """Prices in turn, with all repetitions that have been seen at hand, as long as they find much."""
        for _ in range(_TURNS):
            before = self._gap()
            if not self._is_met() or before <= _DONE:
                return
            self._try(BY_PRICES, self.best, self.search.part_of_work(SETTINGS.polish_tries))
            if self._gap() > _HELPED * before:
                return

    def _find_floor(self) -> None:
        """Where nothing has met the budget, search for the lowest peak: the same search, whatever the budget.

        So what is said to be out of reach is so for every budget: a budget below the floor gets the plan of the lowest
        peak.
        """
        search = self.search
        if search.guard.check_now() in {"time", "interrupt"} or _FLOOR in self.without:
            return
        limits = Limits(search.guard.remaining_s(), search.limits.work, search.limits.seed)
        with Stage("the search for the lowest peak"):
            outcome = least_memory(
                self.step,
                math.inf,
                limits,
                search.interrupt,
                order=search.order,
                known=self.floor_starts,
                check=search.check,
                within=self.budget,
            )
            search.guard.exhausted(outcome.work)
            search.archive.note(outcome.require())

    def _try(self, name: str, plan: PlannedSequence, work: int | None = None) -> None:
        """Try a strategy, unless nothing is left to win or to spend."""
        if name in self.without or not self._goes_on() or self._gap() <= _DONE:
            return
        # A budget that no order alone has met has a bound only when a plan is within it.
        enough = 0.0
        if self._is_met():
            enough = self._bound().seconds + _DONE * self.step.baseline_seconds
        self.search.polish(name, plan, self.budget, work, enough_seconds=enough)

    def _goes_on(self) -> bool:
        """Whether there is time and work left; half of the time is kept for the floor until something is within the budget."""
        if self._is_met():
            return self.search.goes_on() and self._pays()
        most = self.search.limits.time_s
        return self.search.goes_on() and (most is None or self.search.guard.seconds() <= most / 2)

    def _pays(self) -> bool:
        """Whether a faster plan may save more than the search for it has taken."""
        seconds = self.best.seconds - self.step.baseline_seconds
        return self.search.limits.pays(seconds, self.search.guard.seconds())

    def _is_met(self) -> bool:
        return self.best.peak_with_workspace_bytes <= self.budget

    def _is_free(self) -> bool:
        """Whether the budget is met by an order alone: nothing can be faster."""
        return self._is_met() and self.search.is_free(self.best)

    def _is_out_of_reach(self) -> bool:
        """Whether no plan is within the budget, by what is proved of all orders, or of the one that is fixed."""
        if self._is_met() or self.budget < self.step.lower_bound_bytes:
            return not self._is_met()
        return self.search.order is not None and self._bound().is_infeasible

    def _bound(self) -> RecomputeBound:
        """The least time of the best sequence's order of first executions."""
        best = self.best
        order = tuple(dict.fromkeys(best.sequence))
        if order not in self._bounds:
            self._bounds[order] = RecomputeBound(self.step.baseline_seconds)
            with Stage("the bound of the least time"):
                self._bounds[order] = self.search.bounds_of(best).certificate(self.budget)
            self.search.known |= self._bounds[order].repetitions
        return self._bounds[order]

    def _gap(self) -> float:
        """How far above the proved least time the best one is, as a share of the baseline's; without end if too high."""
        if not self._is_met():
            return math.inf
        if self._is_free() or not self.step.baseline_seconds:
            return 0.0
        return (self.best.seconds - self._bound().seconds) / self.step.baseline_seconds

    def _ending(self) -> Termination:
        best, (limit, unproved) = self.best, self.search.ended()
        peak, bound = best.peak_with_workspace_bytes, self.step.lower_bound_bytes
        if self._is_free():
            detail = "met by order alone"  # nothing is faster
            return Termination(TerminationReason.OPTIMAL, None, detail, best.seconds, best.seconds)
        if self._is_met() and not (self._bounds or self._pays()):
            return Termination(unproved, limit, _NOT_WORTH_IT, best.seconds)
        if self._is_met():
            return bounded_ending(self.step, best, self._bound(), limit, unproved)
        if self.budget < bound:
            detail = f"no schedule of these operations needs less than {format_bytes(bound)}"
            return Termination(TerminationReason.INFEASIBLE, None, detail, peak, bound)
        if unproved is not TerminationReason.INTERRUPTED:
            unproved = TerminationReason.NO_SOLUTION_FOUND
        return Termination(unproved, limit, f"the lowest peak found is {format_bytes(peak)}", peak, bound)


def bounded_ending(
    step: StepProblem,
    found: PlannedSequence,
    proved: RecomputeBound,
    limit: str | None,
    unproved: TerminationReason,
) -> Termination:
    """How a search ended that met its budget by recomputation, by what is proved for the plan's own order.

    Where the plan is above its bound, it ended at a limit for a reason that is `unproved`.
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
