"""The portfolio: several strategies on several orders, the best answer so far, and the reason for stopping."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Final

from neaptide.outcome import Limits, Outcome, Termination, TerminationReason, left_out
from neaptide.planner.failed_stages import attempt
from neaptide.planner.objective import PlannedSequence, PlanningProblem
from neaptide.planner.recompute.bounds.certificate import RecomputeBound, recompute_bound
from neaptide.planner.recompute.curve.least_memory import least_memory
from neaptide.planner.recompute.engine import RecomputeEngine, bounded_ending, ending_by_order_alone
from neaptide.planner.recompute.recomputations import repetition_pairs
from neaptide.planner.recompute.settings import SETTINGS
from neaptide.planner.strategies import Strategy
from neaptide.planner.strategies.block_dp import has_many_alike
from neaptide.schedule.problem import StepProblem
from neaptide.units import format_bytes

STAGES: Final = (
    "early_updates",
    "best_order",
    "greedy_recompute",
    "block_dp",
    "closure",
    "least_memory",
    "lagrangian",
    "ruin_recreate",
)
"""What the portfolio tries beside program order."""
_NOT_WORTH_IT: Final = "a faster plan would save less than the search for it takes"


def plan_sequence(
    step: StepProblem,
    budget_bytes: int,
    limits: Limits,
    *,
    seed: int | None = None,
    interrupt: threading.Event | None = None,
    order: tuple[int, ...] | None = None,
    check: Callable[[Sequence[int]], None] | None = None,
    known: Sequence[PlannedSequence] = (),
    without: Collection[str] = (),
) -> Outcome[PlannedSequence]:
    """The fastest sequence found whose peak with workspace is within a budget, else the one with the lowest peak.

    The lowest peak is what a search for it alone finds, so it does not depend on the budget: `least_memory`, under a limit of
    work of its own and in at least half of the time. Never above the larger of budget and baseline. The same under the same work limit and seed, whatever the
    machine, when there is no time limit; work is counted in changes tried.

    Args:
        step: the program.
        budget_bytes: highest peak with workspace.
        limits: time, work and seed of the search.
        seed: overrides `limits.seed`.
        interrupt: set it to stop; the best answer so far is returned.
        order: of first executions that every plan keeps to; by default program order and better ones.
        check: raises for a sequence that is not legal: the strategy that gave it has failed.
        known: plans that there are already, for the search for the lowest peak.
        without: stages to leave out, of `STAGES`, to measure what they earn.

    Returns:
        An outcome with a value always. `OPTIMAL`: within the budget, and no sequence with its order of first
        executions is faster. `FEASIBLE`: within it; the bound holds for that order. `INFEASIBLE`: a lower bound
        proves that no sequence is; `NO_SOLUTION_FOUND`: none was found; with both the value is the sequence with
        the lowest peak found.
    """
    chosen = limits if seed is None else replace(limits, seed=seed)
    engine = RecomputeEngine(step, chosen, interrupt, order=order, check=check)
    return _Portfolio(engine, budget_bytes, tuple(known), left_out(without, STAGES)).run()


class _Portfolio:
    def __init__(
        self,
        engine: RecomputeEngine,
        budget_bytes: int,
        floor_starts: tuple[PlannedSequence, ...],
        without: frozenset[str],
    ) -> None:
        self.engine = engine
        self.floor_starts = floor_starts
        self.step = engine.step
        self.budget = budget_bytes
        self.without = without
        self.best = engine.first_plan()
        self.known: set[tuple[int, int]] = set()
        self._by_order: dict[tuple[int, ...], PlannedSequence] = {}
        self._bounds: dict[tuple[int, ...], RecomputeBound] = {}

    def run(self) -> Outcome[PlannedSequence]:
        self._note(self.best)
        if not self.step.node_count:
            return self._outcome()
        starts = [self.engine.problem(self.budget)]
        may_reorder = not self._is_free() and self.engine.order is None
        if may_reorder:
            self._hoist_updates(starts)
        # Something within the budget comes first: on a busy machine the search for an order may take all of the time.
        first = starts[0]
        self._search("greedy_recompute", first, SETTINGS.polish_tries)
        if may_reorder:
            self._order_again(starts)
        for start in starts:
            if start is not first:
                self._search("greedy_recompute", start, SETTINGS.polish_tries)
        if self._is_met() and not self._pays():
            return self._outcome()
        is_blocked = "block_dp" not in self.without and self._goes_on() and self._gap() > SETTINGS.near
        by_blocks = is_blocked and self._has_many_alike(starts[0])
        if by_blocks:
            # What is solved once for all blocks that are alike costs little, and often leaves nothing to win.
            self._search("block_dp", starts[0])
        if self._is_met():
            self._polish("lagrangian", SETTINGS.quick_tries)
        for start in starts:
            if self._gap() > SETTINGS.near:
                self._search("closure", start)
        self._find_floor()
        if self._is_out_of_reach():
            # What has been found says how far one gets.
            return self._outcome()
        if self._is_met() and self._gap() > SETTINGS.near:
            self._polish("lagrangian", SETTINGS.polish_tries, all_orders=self._gap() > SETTINGS.far)
        if self._gap() > SETTINGS.far and not by_blocks:
            self._search("block_dp", starts[0])
        self._alternate()
        return self._outcome()

    def _hoist_updates(self, starts: list[PlanningProblem]) -> None:
        """Lower where the gradients pile up; usually the better order, so it goes first."""
        if "early_updates" not in self.without:
            early = self._try("early_updates", starts[0])
            if early.sequence != starts[0].first_sequence():
                starts.insert(0, replace(starts[0], start=early.sequence))

    def _alternate(self) -> None:
        """Ruin and prices in turn: each finds repetitions that the other would not, until both find little."""
        for _ in range(SETTINGS.turns):
            if self._gap() <= SETTINGS.far or not self._goes_on():
                return
            before = self._gap()
            self._polish("ruin_recreate", SETTINGS.polish_tries)
            self._polish("lagrangian", SETTINGS.polish_tries)
            if self._gap() > (1.0 - SETTINGS.least_progress) * before:
                return

    def _polish(self, name: str, work: int | None = None, *, all_orders: bool = False) -> None:
        """Try a strategy on the best sequence so far, with all repetitions that have been seen at hand.

        With `all_orders`, on the best of each order of first executions that is not far behind.
        """
        if work is not None:
            # Something is to be left for the others.
            work = self.engine.part_of_work(work)
        first = self._extra(self.best)
        plans = sorted(self._by_order.values(), key=lambda plan: plan.rank(self.budget))
        for plan in plans if all_orders else plans[:1]:
            if not self._is_done() and self._extra(plan) <= SETTINGS.not_far_behind * first:
                enough = self._bound().seconds + SETTINGS.close_enough * self.step.baseline_seconds
                start = self.engine.problem(self.budget, plan.sequence)
                start = replace(start, known=frozenset(self.known), enough_seconds=enough)
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
        if (
            self.step.order_lower_bound_bytes > max(SETTINGS.lower_order * lowest, self.budget)
            or not self._goes_on()
        ):
            return
        work = self.engine.part_of_work(SETTINGS.order_work // max(self.step.node_count, 1))
        found = self._try("best_order", first, work)
        if found.peak_with_workspace_bytes < SETTINGS.lower_order * lowest:
            starts.insert(0, replace(first, start=found.sequence))
            del starts[2:]

    def _find_floor(self) -> None:
        """Where nothing has met the budget, search for the lowest peak: the same search, whatever the budget.

        So what is said to be out of reach is so for every budget: a budget below the floor gets the plan of the lowest peak.
        """
        if self._is_met() or self.engine.is_cut() or "least_memory" in self.without:
            return

        def lowest(
            problem: PlanningProblem, limits: Limits, interrupt: threading.Event | None = None
        ) -> Outcome[PlannedSequence]:
            return least_memory(
                self.step,
                math.inf,
                limits,
                interrupt,
                order=self.engine.order,
                known=self.floor_starts,
                check=self.engine.check,
                within=problem.budget_bytes,
            )

        floor = self.engine.run_anew("least_memory", self.engine.problem(self.budget), lowest)
        if floor is not None:
            self._note(floor)

    def _search(self, name: str, problem: PlanningProblem, work: int | None = None) -> None:
        """Try a strategy, unless nothing is left to win or to spend."""
        if name not in self.without and self._goes_on() and not self._is_done():
            self._try(name, problem, work)

    def _try(
        self,
        name: str,
        problem: PlanningProblem,
        work: int | None = None,
        *,
        solve: Strategy | None = None,
    ) -> PlannedSequence:
        """What a strategy finds; where it fails, the sequence that it was started from."""
        found = self.engine.run(name, problem, tries=work, solve=solve, counts=self._is_best)
        if found is None:
            return PlannedSequence.evaluate(self.step, problem.first_sequence(), name)
        self._note(found)
        return found

    def _is_best(self, found: PlannedSequence) -> bool:
        return found.rank(self.budget) < self.best.rank(self.budget)

    def _note(self, found: PlannedSequence) -> None:
        self.known.update(repetition_pairs(found.sequence, self.step.node_count))
        order = tuple(dict.fromkeys(found.sequence))
        other = self._by_order.get(order)
        if other is None or found.rank(self.budget) < other.rank(self.budget):
            self._by_order[order] = found
        if self._is_best(found):
            self.best = found

    def _has_many_alike(self, problem: PlanningProblem) -> bool:
        return attempt("the search for blocks", lambda: has_many_alike(problem), lambda: False)

    def _goes_on(self) -> bool:
        """Whether there is time and work left; half of the time is kept for the floor until something is within the budget."""
        return self.engine.goes_on() and (self._pays() if self._is_met() else not self.engine.is_half_gone())

    def _pays(self) -> bool:
        """Whether a faster plan may save more than the search for it has taken."""
        return self.engine.pays(self.best.seconds - self.step.baseline_seconds)

    def _is_met(self) -> bool:
        """Whether the best one is within the budget."""
        return self.best.peak_with_workspace_bytes <= self.budget

    def _is_out_of_reach(self) -> bool:
        """Whether no plan is within the budget, by what is proved of all orders, or of the one that is fixed."""
        if self._is_met() or self.budget < self.step.lower_bound_bytes:
            return not self._is_met()
        return self.engine.order is not None and self._bound().is_infeasible

    def _is_free(self) -> bool:
        """Whether the budget is met by an order alone: nothing can be faster."""
        return self._is_met() and len(self.best.sequence) == self.step.node_count

    def _bound(self) -> RecomputeBound:
        """The least time of the best sequence's order of first executions."""
        order = tuple(dict.fromkeys(self.best.sequence))
        if order not in self._bounds:
            bound = attempt(
                "the bound of the least time",
                lambda: recompute_bound(self.step, self.budget, sequence=order, guard=self.engine.guard),
                lambda: RecomputeBound(self.step.baseline_seconds, 0, False, 0),
            )
            self._bounds[order] = bound
            self.known.update(bound.repetitions)
        return self._bounds[order]

    def _gap(self) -> float:
        """How far above the proved least time the best one is, as a share of the baseline's; without end if too high."""
        best = self.best
        if not self._is_met():
            return float("inf")
        if self._is_free() or not self.step.baseline_seconds:
            return 0.0
        return (best.seconds - self._bound().seconds) / self.step.baseline_seconds

    def _is_done(self) -> bool:
        """Whether nothing can be faster, or not by an amount that matters."""
        return self._gap() <= SETTINGS.close_enough

    def _outcome(self) -> Outcome[PlannedSequence]:
        best, guard = self.best, self.engine.guard
        limit, unproved = self.engine.ended()
        peak, bound = best.peak_with_workspace_bytes, self.step.lower_bound_bytes
        if self._is_free():
            ending = ending_by_order_alone(best)
        elif self._is_met() and not (self._bounds or self._pays()):
            ending = Termination(unproved, limit, _NOT_WORTH_IT, best.seconds)
        elif self._is_met():
            ending = bounded_ending(self.step, best, self._bound(), limit, unproved)
        elif self.budget < bound:
            detail = f"no schedule of these operations needs less than {format_bytes(bound)}"
            ending = Termination(TerminationReason.INFEASIBLE, None, detail, peak, bound)
        else:
            is_cut = unproved is TerminationReason.INTERRUPTED
            reason = unproved if is_cut else TerminationReason.NO_SOLUTION_FOUND
            detail = f"the lowest peak found is {format_bytes(peak)}"
            ending = Termination(reason, limit, detail, peak, bound)
        return Outcome(best, ending, guard.seconds(), guard.work)
