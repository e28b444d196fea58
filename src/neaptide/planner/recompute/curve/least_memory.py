"""The lowest peak whose time is within a limit: a search for the curve of time against memory, around one point of it.

The ladder of plans that a curve begins with says where the limit crosses it, and the lines below the curve say how far
down a plan may be. Between the two a budget is chosen and worked on until its plan is fast enough or nothing helps any
more, and so on while much is open. A single strategy, which knows nothing but budgets, is asked for one after the other.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from neaptide.outcome import Limits, Outcome, Termination, TerminationReason
from neaptide.planner.failed_stages import Stage
from neaptide.planner.objective import PlannedSequence
from neaptide.planner.recompute.curve.search import RecomputeSearch
from neaptide.planner.recompute.settings import SETTINGS
from neaptide.planner.strategies import strategy
from neaptide.schedule.problem import StepProblem
from neaptide.units import format_bytes, format_seconds

LEAST_MEMORY: Final = "the lowest peak found within the limit on time"
LOWEST_PEAK: Final = "the lowest peak found"
"""Why such a search ended, with a limit on time and without one."""
_RUNGS: Final = 20  # plans of the ladder for each table; budgets that are worked on after it
_COSTLY_BUDGETS: Final = 3  # that are worked on with more effort at a time
_COSTLY_PART: Final = (
    4  # of what is open, one in so many is asked for there at once, since what fails costs most
)
_TURNS: Final = 2  # to costly attempts
_PROOFS: Final = 4  # where a bound crosses the limit
_HELPED: Final = 0.9  # what an attempt leaves of what is too slow at most if it has helped


def least_memory(
    step: StepProblem,
    longest: float,
    limits: Limits,
    interrupt: threading.Event | None = None,
    *,
    order: tuple[int, ...] | None = None,
    known: Sequence[PlannedSequence] = (),
    check: Callable[[Sequence[int]], None] | None = None,
    within: int = 0,
) -> Outcome[PlannedSequence]:
    """The lowest peak found among plans that take no longer than a limit; the fastest plan where none is as fast.

    The same under the same work limit and seed, whatever the machine, when there is no time limit. `best` and `bound` of
    the outcome are bytes. `OPTIMAL`: no plan within the time with its order of first executions has a lower peak.
    `INFEASIBLE`: no schedule is as fast.

    Args:
        longest: seconds of a step; infinite for the lowest peak at any price.
        order: of first executions that every plan keeps to; by default the best one that is found.
        known: plans that there are already; the answer is no worse than each of them.
        check: raises for a sequence that is not legal; it is then not the answer.
        within: bytes that are low enough: where a plan is within them, the search ends, and the fastest such plan is the
            answer. As long as none is, the search is the same as without.
    """
    search = _LeastMemory(RecomputeSearch(step, limits, interrupt, order=order, check=check), longest, within)
    return search.run(known)


def least_memory_by(
    name: str,
    step: StepProblem,
    longest: float,
    limits: Limits,
    interrupt: threading.Event | None = None,
    *,
    order: tuple[int, ...] | None = None,
    check: Callable[[Sequence[int]], None] | None = None,
) -> Outcome[PlannedSequence]:
    """As `least_memory`, found by one strategy alone."""
    search = RecomputeSearch(step, limits, interrupt, order=order, check=check)
    return _LeastMemory(search, longest, 0).by_one_strategy(name)


class _LeastMemory:
    def __init__(self, search: RecomputeSearch, longest: float, within: int) -> None:
        self.search, self.longest, self.within = search, longest, within
        self.step, self.archive = search.step, search.archive

    def by_one_strategy(self, name: str) -> Outcome[PlannedSequence]:
        """One strategy alone, asked for one budget after the other; what it fails with is the failure of the search."""
        search = self.search
        search.start = search.baseline = replace(search.start, strategy=name)
        self.archive.plans = [search.start]

        def ask(budget: int) -> Iterator[None]:
            outcome = strategy(name)(search.problem(budget), search.left(), search.interrupt)
            search.guard.exhausted(outcome.work)
            self.archive.note(outcome.require())
            yield

        next(ask(search.start.peak_with_workspace_bytes))
        self._narrow(ask, _RUNGS, 2, 0)
        if self.longest == math.inf and not self._is_enough():
            next(ask(self.archive.lowest().peak_with_workspace_bytes))
        return self._outcome(self._legal())

    def run(self, known: Sequence[PlannedSequence]) -> Outcome[PlannedSequence]:
        """Halve what is open; where much is left, try harder for a few budgets, and go on where that helped."""
        self._begin(known)
        attempts = self.search.attempts
        self._narrow(attempts, _RUNGS, 2, 0)
        given_up = 0
        for _ in range(_TURNS):
            before = self.archive.lowest_within(self.longest)
            if not self._is_open(SETTINGS.far, given_up):
                break
            given_up = self._narrow(self._costly_attempts, _COSTLY_BUDGETS, _COSTLY_PART, given_up)
            if self.archive.lowest_within(self.longest) == before:
                break
            self._narrow(attempts, _RUNGS, 2, 0)
        if self.longest == math.inf and not self._is_enough():
            # At any price does not mean that the price is of no interest.
            self.search.speed_up(self.archive.lowest().peak_with_workspace_bytes)
        return self._outcome(self._legal())

    # Where plans come from.

    def _begin(self, known: Sequence[PlannedSequence]) -> None:
        """The order to start from, plans near the limit, and lines below the curve."""
        search, archive = self.search, self.archive
        if search.order is None:
            search.hoist_updates()
            search.order_again()
        for plan in known:
            archive.note(plan)
        bare = None
        if self.longest == math.inf:
            # The ladder says where a limit on time crosses it; here the floor is what counts, and comes first.
            search.sink(search.start, 0)
            bare = search.hold_nothing()
        search.climb_down(0, _RUNGS)
        if archive.lowest().seconds <= self.longest:
            # The floor may be within the time.
            search.sink_lowest(0)
        lowest = archive.lowest().peak_with_workspace_bytes
        if bare is not None and search.is_clearly_above(bare.peak_with_workspace_bytes, lowest):
            archive.note(bare)
        with Stage("the bounds below the curve"):
            self._prove()

    def _prove(self) -> None:
        """Raise the floor, and the lines where they cross the limit."""
        bounds = self.search.bounds
        bounds.prove_floor(self.archive.lowest().peak_with_workspace_bytes)
        for _ in range(_PROOFS):
            before = self._least_bytes()
            bounds.prove([before])
            if self._least_bytes() <= (1.0 + SETTINGS.hardly_more) * before:
                return

    def _costly_attempts(self, budget: int) -> Iterator[None]:
        """What a curve of many budgets has no time for, unless a certificate excludes the budget."""
        self.search.certify(budget)
        if self._least_bytes() <= budget:
            yield from self.search.costly_attempts(budget)

    def _least_bytes(self) -> int:
        """The budget at which the lines below the curve cross the limit: no plan with the start's order is lower."""
        longest = self.longest + SETTINGS.proved * self.step.baseline_seconds
        bounds = self.search.bounds
        low, high = bounds.floor_bytes, self.search.start.peak_with_workspace_bytes
        while low < high:
            middle = (low + high) // 2
            if bounds.seconds(middle) <= longest:
                high = middle
            else:
                low = middle + 1
        return high

    # Which budget is next.

    def _narrow(self, attempts: Callable[[int], Iterator[None]], budgets: int, part: int, low: int) -> int:
        """Go down by a part of what is open; a budget that is given up counts as too low, and is returned."""
        for _ in range(budgets):
            best = self.archive.lowest_within(self.longest)
            if best is None or not self._is_open(SETTINGS.hardly_more, low):
                break
            peak = best.peak_with_workspace_bytes
            budget = peak - max((peak - max(low, self._least_bytes())) // part, 1)
            if not self._reach(budget, attempts(budget)):
                low = budget
        return low

    def _is_open(self, share: float, low: int) -> bool:
        """Whether the peak may fall by more than a share of it, but not below some bytes."""
        best = self.archive.lowest_within(self.longest)
        if best is None or self._is_enough() or not self.search.goes_on():
            return False
        peak = best.peak_with_workspace_bytes
        return peak - max(low, self._least_bytes()) > max(share * peak, 1.0)

    def _is_enough(self) -> bool:
        """Whether a plan is within the bytes that are low enough; who asks for them goes on by himself."""
        enough = self.archive.best(self.within)
        return enough is not None and enough.seconds <= self.longest

    def _reach(self, budget: int, attempts: Iterator[None]) -> bool:
        """Whether a plan for a budget becomes fast enough."""
        misses, above = 0, self._above(budget)
        for _ in attempts:
            now = self._above(budget)
            if now <= 0.0:
                break
            misses = 0 if now < _HELPED * above else misses + 1
            above = min(above, now)
            if misses >= SETTINGS.misses:
                break
        return self._above(budget) <= 0.0

    def _above(self, budget: int) -> float:
        """By how many seconds the fastest plan for a budget is too slow."""
        best = self.archive.best(budget)
        return math.inf if best is None else best.seconds - self.longest

    # The answer.

    def _legal(self) -> PlannedSequence | None:
        """The best plan that is legal; one that is not is a fault of ours, and the next takes its place."""
        while True:
            best = self.archive.best(self.within)
            if best is None or best.seconds > self.longest:
                best = self.archive.lowest_within(self.longest)
            if best is None or best is self.search.baseline or self._is_legal(best):
                return best
            self.archive.drop(best)
            if not self.archive.plans:
                self.archive.note(self.search.baseline)

    def _is_legal(self, plan: PlannedSequence) -> bool:
        with Stage(f"the search for the lowest peak, by {plan.strategy},", can_be_cut=False):
            if self.search.check is not None:
                self.search.check(plan.sequence)
            return True
        return False

    def _outcome(self, best: PlannedSequence | None) -> Outcome[PlannedSequence]:
        guard = self.search.guard
        if best is None:
            least = format_seconds(self.step.baseline_seconds)
            detail = f"no schedule of these operations takes less than {least}"
            best = self.archive.fastest()
            ended = Termination(TerminationReason.INFEASIBLE, None, detail, best.peak_with_workspace_bytes)
        else:
            ended = self._ending(best)
        return Outcome(best, ended, guard.seconds(), guard.work)

    def _ending(self, best: PlannedSequence) -> Termination:
        """What is proved of the peak: for the order of the start, or for all plans."""
        peak, least = best.peak_with_workspace_bytes, self._least_bytes()
        which = "plan with this order of first executions"
        if tuple(dict.fromkeys(best.sequence)) != self.search.start.sequence or least > peak:
            # Of another order, or a bound that is wrong: neither says anything of this plan.
            which, least = "plan", self.step.lower_bound_bytes
        within, as_fast = (LEAST_MEMORY, " that is as fast")
        if self.longest == math.inf:
            within, as_fast = LOWEST_PEAK, ""
        if least >= peak:
            detail = f"{within.replace(' found', '')}: no {which}{as_fast} has a lower one"
            return Termination(TerminationReason.OPTIMAL, None, detail, peak, peak)
        limit, reason = self.search.ended()
        detail = f"{within}; no {which}{as_fast} is below {format_bytes(least)}"
        return Termination(reason, limit, detail, peak, least)
