"""The search for recomputations: the plans of one step so far, what is proved of them, and the moves that find more.

Every plan that is met is kept in one archive, the curve of time against memory, so that one found for a small budget
counts for all larger ones. The questions differ in what they ask next: `portfolio` for one budget, `curve` for many,
`least_memory` for the lowest peak.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from neaptide.outcome import LimitGuard, Limits, TerminationReason
from neaptide.planner.failed_stages import Stage
from neaptide.planner.objective import PlannedSequence, PlanningProblem
from neaptide.planner.recompute.bounds.envelope import BoundEnvelope
from neaptide.planner.recompute.chain.options import KnownChains
from neaptide.planner.recompute.chain.plans import NominalBudgets, chain_of, nothing_held
from neaptide.planner.recompute.settings import SETTINGS
from neaptide.planner.recompute.units import repetition_pairs
from neaptide.planner.strategies import strategy
from neaptide.planner.strategies.best_order import order_work
from neaptide.planner.strategies.greedy_recompute import GreedyRecompute, descent_guard
from neaptide.schedule.problem import StepProblem

BY_BLOCKS: Final = "block_dp"
BY_PRICES: Final = "lagrangian"
# Blocks, and the part of the highest budget that the table of a ladder reaches up to; a smaller one has finer slots.
_LADDER: Final = ((8, 1), (16, 1), (16, 4))
_FLOOR_STARTS: Final = 2
_STALLS: Final = 2  # descents in a row that hardly bring anything are the last


class PlanArchive:
    """Plans of which none is as fast as another with as low a peak, in the order in which they were found."""

    def __init__(self) -> None:
        self.plans: list[PlannedSequence] = []

    def keeps(self, found: PlannedSequence) -> bool:
        """Whether no other plan is as fast with as low a peak. O(plans)."""
        peak, seconds = found.peak_with_workspace_bytes, found.seconds
        return not any(p.peak_with_workspace_bytes <= peak and p.seconds <= seconds for p in self.plans)

    def note(self, found: PlannedSequence) -> None:
        """Keep a plan if it is of use; those that it beats go. O(plans)."""
        if self.keeps(found):
            peak, seconds = found.peak_with_workspace_bytes, found.seconds
            self.plans = [p for p in self.plans if p.peak_with_workspace_bytes < peak or p.seconds < seconds]
            self.plans.append(found)

    def drop(self, plan: PlannedSequence) -> None:
        """Keep a plan no longer. O(plans)."""
        self.plans = [p for p in self.plans if p is not plan]

    def best(self, budget_bytes: int) -> PlannedSequence | None:
        """The fastest plan within a budget. O(plans)."""
        within = [p for p in self.plans if p.peak_with_workspace_bytes <= budget_bytes]
        return min(within, key=lambda p: p.rank(budget_bytes), default=None)

    def lowest_within(self, seconds: float) -> PlannedSequence | None:
        """The plan with the lowest peak among those that take no longer; None when each does. O(plans)."""
        fast = [p for p in self.plans if p.seconds <= seconds]
        return min(fast, key=lambda p: p.peak_with_workspace_bytes, default=None)

    def fastest(self) -> PlannedSequence:
        """The plan that takes least; there must be one."""
        return min(self.plans, key=lambda p: p.seconds)

    def lowest(self) -> PlannedSequence:
        """The plan with the lowest peak; there must be one."""
        return min(self.plans, key=lambda p: p.peak_with_workspace_bytes)


class RecomputeSearch:
    """Plans of one step under one set of limits.

    Attributes:
        guard: of all work.
        archive: the plans that count.
        baseline: program order, or the order of first executions that every plan keeps to.
        start: the order of first executions that plans with recomputation share.
        known: repetitions that what is proved asks for, to choose from.
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

        Every plan keeps to the `order` of first executions where one is given. `check` raises for a sequence that is not
        legal: the strategy that gave it has failed.
        """
        self.step, self.limits, self.interrupt = step, limits, interrupt
        self.order, self.check = order, check
        self.guard = LimitGuard(limits, interrupt)
        self.archive = PlanArchive()
        first = range(step.node_count) if order is None else order
        self.baseline = self.start = PlannedSequence.evaluate(step, first, "program_order")
        self.archive.note(self.baseline)
        self.known: frozenset[tuple[int, int]] = frozenset()
        self._chains = KnownChains()
        self._bounds: dict[tuple[int, ...], BoundEnvelope] = {}

    def problem(self, budget: int, plan: PlannedSequence | None = None) -> PlanningProblem:
        """The step with a budget, from some plan; from the start by default."""
        return PlanningProblem(self.step, budget, (plan or self.start).sequence, chains=self._chains)

    # Limits.

    def left(self, tries: int | None = None) -> Limits:
        """What is left of the limits, for one search of so many tries."""
        left = self.guard.left()
        work = tries if left.work is None else left.work if tries is None else min(left.work, tries)
        return Limits(left.time_s, work, left.seed)

    def part_of_work(self, most: int) -> int:
        """Tries for one search among several, which must leave something for the others."""
        left = self.guard.left(SETTINGS.parts).work
        return most if left is None else min(most, left)

    def goes_on(self) -> bool:
        """Whether neither time nor work is used up, nor anybody has interrupted."""
        return self._stopped() is None

    def _stopped(self) -> str | None:
        most = self.limits.work
        is_used_up = most is not None and self.guard.work >= most
        return self.guard.check_now() or ("work" if is_used_up else None)

    def ended(self) -> tuple[str | None, TerminationReason]:
        """The limit that was reached, if any, and the reason for an end at which nothing is proved."""
        stopped = self._stopped()
        reason = TerminationReason.INTERRUPTED if stopped == "interrupt" else TerminationReason.FEASIBLE
        return stopped if stopped in {"time", "work"} else None, reason

    # What is proved.

    def bounds_of(self, plan: PlannedSequence) -> BoundEnvelope:
        """What is known of the order of first executions of a plan."""
        order = tuple(dict.fromkeys(plan.sequence))
        if order not in self._bounds:
            self._bounds[order] = BoundEnvelope(self.step, order, guard=self.guard)
        return self._bounds[order]

    @property
    def bounds(self) -> BoundEnvelope:
        """What is known of the order of the start."""
        return self.bounds_of(self.start)

    def gap(self, budget: int) -> float:
        """Distance of the best plan from its bound as a share of the baseline's time; 0 where nothing can be won."""
        best, bound = self.archive.best(budget), self.bounds.seconds(budget)
        if bound == float("inf") or not self.step.baseline_seconds:
            return 0.0
        if best is None:
            return float("inf")
        return max(best.seconds - bound, 0.0) / self.step.baseline_seconds

    def is_settled(self, budget: int) -> bool:
        """Whether no plan can be faster: order alone meets the budget, or the bound is met."""
        best = self.archive.best(budget)
        return best is not None and (self.is_free(best) or self.gap(budget) <= SETTINGS.proved)

    def is_free(self, plan: PlannedSequence) -> bool:
        """Whether a plan repeats nothing."""
        return len(plan.sequence) == self.step.node_count

    def certify(self, budget: int) -> None:
        """Ask the certificate of one budget, which looks at several steps together, unless the program is too large."""
        if self.step.node_count <= SETTINGS.most_nodes:
            self.bounds.certify(budget)

    def certify_nearest(self, budgets: Sequence[int]) -> None:
        """The certificate of one budget that is far from its bound: the nearest of those, since it may be met."""
        far = [b for b in budgets if self.gap(b) > SETTINGS.far and self.archive.best(b) is not None]
        if far:
            self.certify(min(far, key=self.gap))

    # Moves.

    def run(
        self,
        name: str,
        plan: PlannedSequence,
        budget: int,
        tries: int | None = None,
        *,
        enough_seconds: float = 0.0,
    ) -> PlannedSequence | None:
        """What a strategy finds from a plan; None where it fails."""
        pairs = (repetition_pairs(other.sequence, self.step.node_count) for other in self.archive.plans)
        problem = replace(
            self.problem(budget, plan), known=self.known.union(*pairs), enough_seconds=enough_seconds
        )
        with Stage(f"the strategy {name}"):
            outcome = strategy(name)(problem, self.left(tries), self.interrupt)
            self.guard.exhausted(outcome.work)
            found = outcome.require()
            if self.check is not None and self.archive.keeps(found):
                self.check(found.sequence)
            return found
        return None

    def polish(
        self,
        name: str,
        plan: PlannedSequence,
        budget: int,
        tries: int | None = None,
        *,
        enough_seconds: float = 0.0,
    ) -> None:
        """Have what a strategy finds from a plan."""
        found = self.run(name, plan, budget, tries, enough_seconds=enough_seconds)
        if found is not None:
            self.archive.note(found)

    def hoist_updates(self) -> None:
        """Start from early updates, even where the peak is elsewhere: gradients that are gone leave room."""
        found = self.run("early_updates", self.start, self.start.peak_with_workspace_bytes)
        if found is not None and found.peak_with_workspace_bytes <= self.start.peak_with_workspace_bytes:
            self.start = found
            self.archive.note(found)

    def order_again(self, budget: int = 0) -> bool:
        """Start from another order where the bound of orders says that a better one may exist; whether it is one."""
        peak = self.start.peak_with_workspace_bytes
        if self.step.order_lower_bound_bytes > max(SETTINGS.lower_order * peak, budget) or not self.goes_on():
            return False
        work = self.part_of_work(order_work(self.step))
        found = self.run("best_order", self.start, peak, work)
        if found is None or found.peak_with_workspace_bytes >= SETTINGS.lower_order * peak:
            return False
        # Plans of orders that are not chosen are not kept: what is proved holds for this one.
        self.start = found
        self.archive.note(found)
        return True

    def climb_down(self, budget: int, count: int) -> None:
        """Plans of chain programs from the peak of the start down to a budget, so many for each table of the ladder.

        One table answers every budget, and carrying an answer out is cheap, so a whole ladder of plans costs about as much
        as one search. They charge worst cases of whole blocks, so they are checked by their peaks.
        """
        high, low = self.start.peak_with_workspace_bytes, max(budget, self.step.lower_bound_bytes)
        if high > low:
            with Stage("the ladder of the chain program"):
                self._climb(high, low, count)

    def _climb(self, high: int, low: int, count: int) -> None:
        for most, part in _LADDER:
            top = high // part
            if not self.goes_on() or top <= low:
                return
            problem = self.problem(int(top / SETTINGS.reach))
            chain = chain_of(problem, most)
            if isinstance(chain, str):
                continue
            ladder = NominalBudgets(problem, chain, self.guard, BY_BLOCKS)
            for rung in range(count):
                plan = ladder.plan((top - (top - low) * rung // count) / max(problem.budget_bytes, 1))
                if plan is not None:
                    self.archive.note(plan)

    def sink(self, plan: PlannedSequence, budget: int) -> None:
        """Descents from a plan down to a budget, as long as they lower the peak by much."""
        low = max(budget, self.step.lower_bound_bytes)
        stalled = 0
        while plan.peak_with_workspace_bytes > low and stalled < _STALLS and self.goes_on():
            before, plan = plan, self._changed(plan, low, GreedyRecompute.descend, parts=SETTINGS.parts)
            is_lower = self.is_clearly_above(plan.peak_with_workspace_bytes, before.peak_with_workspace_bytes)
            stalled = 0 if is_lower else stalled + 1

    def sink_lowest(self, budget: int) -> None:
        """As far down to a budget as descents from the lowest plans get."""
        ranked = sorted(self.archive.plans, key=lambda plan: plan.peak_with_workspace_bytes)
        for plan in ranked[:_FLOOR_STARTS]:
            self.sink(plan, budget)
        self.sink(self.archive.lowest(), budget)

    @staticmethod
    def is_clearly_above(low: int, high: int) -> bool:
        """Whether a peak is worth a much longer time beside a higher one."""
        return low <= (1.0 - SETTINGS.floor_progress) * high

    def hold_nothing(self) -> PlannedSequence | None:
        """The plan that recomputes all that the backward reads; None where it takes too much, or is known to be no use."""
        lowest = self.archive.lowest().peak_with_workspace_bytes
        if not self.goes_on() or not self.is_clearly_above(self.step.lower_bound_bytes, lowest):
            return None
        guard, plan = LimitGuard(self.guard.left(SETTINGS.parts), self.interrupt), None
        with Stage("the plan that holds nothing"):
            plan = nothing_held(self.step, self.start.sequence, SETTINGS.polish_tries, guard)
        self.guard.exhausted(guard.work)
        return plan

    def attempts(self, budget: int) -> Iterator[None]:
        """One way after the other to a better plan for a budget, each at the next call; whoever has enough stops."""
        tried: set[tuple[int, ...]] = set()
        while self.goes_on():
            best = self.archive.best(budget)
            above = [p for p in self.archive.plans if p.peak_with_workspace_bytes > budget]
            nearest = min(above, key=lambda p: p.peak_with_workspace_bytes, default=None)
            if best is not None and best.sequence not in tried:
                tried.add(best.sequence)
                self.take_back(best, budget)
            elif nearest is not None and nearest.sequence not in tried:
                tried.add(nearest.sequence)
                self._changed(nearest, budget, GreedyRecompute.repair)
            else:
                return
            yield

    def costly_attempts(self, budget: int) -> Iterator[None]:
        """Strategies that many budgets have no time for, each at the next call."""
        for name in (BY_BLOCKS, BY_PRICES):
            if self.goes_on():
                best = self.archive.best(budget) or self.archive.lowest()
                self.polish(name, self.start if name == BY_BLOCKS else best, budget, SETTINGS.polish_tries)
                yield

    def speed_up(self, budget: int) -> None:
        """The best plan for a budget with repetitions taken back, then with others chosen by their prices."""
        best = self.archive.best(budget)
        if best is not None and not self.is_settled(budget) and self.goes_on():
            self.take_back(best, budget)
            self.polish(BY_PRICES, self.archive.best(budget) or best, budget, SETTINGS.polish_tries)

    def take_back(self, plan: PlannedSequence, budget: int) -> None:
        """A plan with room, with repetitions taken back."""
        self._changed(plan, budget, GreedyRecompute.put_back, plan.strategy)

    def _changed(
        self,
        plan: PlannedSequence,
        budget: int,
        change: Callable[[GreedyRecompute], None],
        name: str = "greedy_recompute",
        parts: int = 1,
    ) -> PlannedSequence:
        """A plan with a change by marginal prices, noted; the tries are charged."""
        guard = descent_guard(self.guard, self.step.node_count, self.interrupt, parts)
        search = GreedyRecompute(self.problem(budget, plan), guard)
        change(search)
        self.guard.exhausted(guard.work)
        found = PlannedSequence.of(search.evaluator, name)
        self.archive.note(found)
        return found
