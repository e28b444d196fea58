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
from typing import Final, Protocol

from neaptide.outcome import Limits, Outcome, Termination, TerminationReason
from neaptide.planner.failed_stages import attempt
from neaptide.planner.objective import PlannedSequence
from neaptide.planner.recompute.curve.points import PlanArchive
from neaptide.planner.recompute.curve.search import CurveSearch
from neaptide.planner.recompute.engine import RecomputeEngine
from neaptide.planner.recompute.settings import SETTINGS
from neaptide.planner.strategies import strategy
from neaptide.schedule.problem import StepProblem
from neaptide.units import format_bytes, format_seconds

LEAST_MEMORY: Final = "the lowest peak found within the limit on time"
LOWEST_PEAK: Final = "the lowest peak found"
"""Why such a search ended, with a limit on time and without one."""


def least_memory(
    step: StepProblem,
    longest: float,
    limits: Limits,
    interrupt: threading.Event | None = None,
    *,
    strategy_name: str | None = None,
    order: tuple[int, ...] | None = None,
    known: Sequence[PlannedSequence] = (),
    check: Callable[[Sequence[int]], None] | None = None,
    within: int = 0,
) -> Outcome[PlannedSequence]:
    """The lowest peak found among plans that take no longer than a limit; the fastest plan where none is as fast.

    The same under the same work limit and seed, whatever the machine, when there is no time limit.

    Args:
        step: the program.
        longest: seconds of a step; infinite for the lowest peak at any price.
        limits: of the whole search.
        interrupt: set it to stop; the best answer so far is returned.
        strategy_name: the only one to ask; by default several work together.
        order: of first executions that every plan keeps to; by default the best one that is found.
        known: plans that there are already; the answer is no worse than each of them.
        check: raises for a sequence that is not legal; it is then not the answer.
        within: bytes that are low enough: where a plan is within them, the search ends, and the fastest such plan is the
            answer. As long as none is, the search is the same as without.

    Returns:
        An outcome with a value always; its `best` and `bound` are bytes. `OPTIMAL`: no plan within the time with its
        order of first executions has a lower peak. `INFEASIBLE`: no schedule is as fast.
    """
    source: _Source
    if strategy_name is None:
        search = CurveSearch(step, limits, interrupt, order=order, check=check)
        source = _Curve(search, longest, known)
    else:
        engine = RecomputeEngine(step, limits, interrupt, order=order)
        source = _Strategy(strategy_name, engine)
    first = PlannedSequence.evaluate(
        step, range(step.node_count) if order is None else order, "program_order"
    )
    return _Search(step, longest, source, check, within, first).run()


class _Source(Protocol):
    """Where plans come from: into the archive, at the next attempt on a budget.

    Attributes:
        archive: of plans; one of them takes no longer than the baseline.
        engine: that runs the strategies.
        start: the order of first executions that all plans with recomputation share.
    """

    archive: PlanArchive
    engine: RecomputeEngine
    start: PlannedSequence

    def attempts(self, budget: int) -> Iterator[None]:
        """One way after the other to get to a plan for a budget."""
        ...

    def costly_attempts(self, budget: int) -> Iterator[None]:
        """Further ones, for few budgets."""
        ...

    def least_bytes(self) -> int:
        """No plan with the order of the start that is fast enough has a lower peak."""
        ...

    def speed_up(self, budget: int) -> None:
        """A faster plan within a budget that some plan is within, where that is cheaply found."""
        ...


class _Curve:
    """The search for a curve."""

    def __init__(self, search: CurveSearch, longest: float, known: Sequence[PlannedSequence]) -> None:
        self._search, self._longest = search, longest
        self.engine, self.archive, self.start = search.engine, search.archive, search.start
        for plan in known:
            self.archive.note(plan)
        bare = None
        if longest == math.inf:
            # The ladder says where a limit on time crosses it; here the floor is what counts, and comes first.
            search.sink_from_start(0)
            bare = search.hold_nothing()
        search.climb_down(0, SETTINGS.rungs)
        if self.archive.lowest().seconds <= longest:
            # The floor may be within the time.
            search.sink(0)
        if bare is not None:
            low, high = (one.peak_with_workspace_bytes for one in (bare, self.archive.lowest()))
            if search.is_clearly_above(low, high):
                self.archive.note(bare)
        attempt("the bounds below the curve", self._prove, lambda: None)

    def attempts(self, budget: int) -> Iterator[None]:
        """What a curve has for one of its budgets."""
        return self._search.attempts(budget)

    def costly_attempts(self, budget: int) -> Iterator[None]:
        """What a curve of many budgets has no time for, unless a certificate excludes the budget."""
        self._search.certify(budget)
        if self.least_bytes() <= budget:
            yield from self._search.costly_attempts(budget)

    def least_bytes(self) -> int:
        """The budget at which the lines below the curve cross the limit."""
        longest = self._longest + SETTINGS.proved * self._search.step.baseline_seconds
        low, high = self._search.bounds.floor_bytes, self.start.peak_with_workspace_bytes
        while low < high:
            middle = (low + high) // 2
            if self._search.bounds.seconds(middle) <= longest:
                high = middle
            else:
                low = middle + 1
        return high

    def speed_up(self, budget: int) -> None:
        """Repetitions taken back, and others chosen by their prices."""
        self._search.speed_up(budget)

    def _prove(self) -> None:
        """Raise the floor, and the lines where they cross the limit."""
        self._search.bounds.prove_floor(self.archive.lowest().peak_with_workspace_bytes)
        for _ in range(SETTINGS.looks):
            before = self.least_bytes()
            self._search.bounds.prove([before])
            if self.least_bytes() <= (1.0 + SETTINGS.hardly_more) * before:
                return


class _Strategy:
    """A strategy alone."""

    def __init__(self, name: str, engine: RecomputeEngine) -> None:
        self.engine, self.archive = engine, PlanArchive()
        self._solve = strategy(name)
        self.start = replace(engine.first_plan(), strategy=name)
        self.archive.note(self.start)
        self._ask(self.start.peak_with_workspace_bytes)

    def attempts(self, budget: int) -> Iterator[None]:
        """One run of the strategy."""
        self._ask(budget)
        yield

    def costly_attempts(self, _budget: int) -> Iterator[None]:
        """Nothing further."""
        return iter(())

    def least_bytes(self) -> int:
        """What no plan at all goes below."""
        return self.engine.step.lower_bound_bytes

    def speed_up(self, budget: int) -> None:
        """Once more, for just these bytes."""
        self._ask(budget)

    def _ask(self, budget: int) -> None:
        # Nothing stands beside it, so what it fails with is the failure of the search.
        outcome = self._solve(self.engine.problem(budget), self.engine.left(), self.engine.interrupt)
        self.engine.guard.exhausted(outcome.work)
        self.archive.note(outcome.require())


class _Search:
    def __init__(
        self,
        step: StepProblem,
        longest: float,
        source: _Source,
        check: Callable[[Sequence[int]], None] | None,
        within: int,
        first: PlannedSequence,
    ) -> None:
        self.step = step
        self.longest = longest
        self.source = source
        self.check = check
        self.within = within
        self.first = first

    def run(self) -> Outcome[PlannedSequence]:
        """Halve what is open; where much is left, try harder for a few budgets, and go on where that helped."""
        self._narrow(self.source.attempts, SETTINGS.rungs, 2, 0)
        given_up = 0
        for _ in range(SETTINGS.stalls):
            before = self.source.archive.lowest_within(self.longest)
            if not self._is_open(SETTINGS.far, given_up):
                break
            given_up = self._narrow(
                self.source.costly_attempts, SETTINGS.costly_budgets, SETTINGS.costly_part, given_up
            )
            if self.source.archive.lowest_within(self.longest) == before:
                break
            self._narrow(self.source.attempts, SETTINGS.rungs, 2, 0)
        if self.longest == math.inf and not self._is_enough():
            # At any price does not mean that the price is of no interest.
            self.source.speed_up(self.source.archive.lowest().peak_with_workspace_bytes)
        return self._outcome(self._legal())

    def _legal(self) -> PlannedSequence | None:
        """The best plan that is legal; one that is not is a fault of ours, and the next takes its place."""
        archive = self.source.archive
        while True:
            best = archive.lowest_within(self.longest)
            enough = archive.best(self.within)
            if enough is not None and enough.seconds <= self.longest:
                best = enough
            if best is None or best is self.first or self._is_legal(best):
                return best
            archive.drop(best)
            if not archive.plans:
                archive.note(self.first)

    def _is_legal(self, plan: PlannedSequence) -> bool:
        def checked() -> bool:
            if self.check is not None:
                self.check(plan.sequence)
            return True

        stage = f"the search for the lowest peak, by {plan.strategy},"
        return attempt(stage, checked, lambda: False, can_be_cut=False)

    def _narrow(self, attempts: Callable[[int], Iterator[None]], budgets: int, part: int, low: int) -> int:
        """Go down by a part of what is open; a budget that is given up counts as too low, and is returned."""
        for _ in range(budgets):
            best = self.source.archive.lowest_within(self.longest)
            if best is None or not self._is_open(SETTINGS.hardly_more, low):
                break
            peak = best.peak_with_workspace_bytes
            budget = peak - max((peak - max(low, self.source.least_bytes())) // part, 1)
            if not self._reach(budget, attempts(budget)):
                low = budget
        return low

    def _is_open(self, share: float, low: int) -> bool:
        """Whether the peak may fall by more than a share of it, but not below some bytes."""
        best = self.source.archive.lowest_within(self.longest)
        if best is None or self._is_enough() or not self.source.engine.goes_on():
            return False
        peak = best.peak_with_workspace_bytes
        return peak - max(low, self.source.least_bytes()) > max(share * peak, 1.0)

    def _is_enough(self) -> bool:
        """Whether a plan is within the bytes that are low enough; who asks for them goes on by himself."""
        enough = self.source.archive.best(self.within)
        return enough is not None and enough.seconds <= self.longest

    def _reach(self, budget: int, attempts: Iterator[None]) -> bool:
        """Whether a plan for a budget becomes fast enough."""
        misses, above = 0, self._above(budget)
        for _ in attempts:
            now = self._above(budget)
            if now <= 0.0:
                break
            misses = 0 if now < (1.0 - SETTINGS.least_progress) * above else misses + 1
            above = min(above, now)
            if misses >= SETTINGS.misses:
                break
        return self._above(budget) <= 0.0

    def _above(self, budget: int) -> float:
        """By how many seconds the fastest plan for a budget is too slow."""
        best = self.source.archive.best(budget)
        return float("inf") if best is None else best.seconds - self.longest

    def _outcome(self, best: PlannedSequence | None) -> Outcome[PlannedSequence]:
        guard = self.source.engine.guard
        limit, reason = self.source.engine.ended()
        if best is None:
            least = format_seconds(self.step.baseline_seconds)
            detail = f"no schedule of these operations takes less than {least}"
            best = self.source.archive.fastest()
            ended = Termination(TerminationReason.INFEASIBLE, None, detail, best.peak_with_workspace_bytes)
        else:
            ended = self._ending(best, limit, reason)
        return Outcome(best, ended, guard.seconds(), guard.work)

    def _ending(self, best: PlannedSequence, limit: str | None, reason: TerminationReason) -> Termination:
        """What is proved of the peak: for the order of the start, or for all plans."""
        peak, least = best.peak_with_workspace_bytes, self.source.least_bytes()
        which = "plan with this order of first executions"
        if not self._keeps_order(best) or least > peak:
            # Of another order, or a bound that is wrong: neither says anything of this plan.
            which, least = "plan", self.step.lower_bound_bytes
        within, as_fast = (LEAST_MEMORY, " that is as fast")
        if self.longest == math.inf:
            within, as_fast = LOWEST_PEAK, ""
        if least >= peak:
            detail = f"{within.replace(' found', '')}: no {which}{as_fast} has a lower one"
            return Termination(TerminationReason.OPTIMAL, None, detail, peak, peak)
        detail = f"{within}; no {which}{as_fast} is below {format_bytes(least)}"
        return Termination(reason, limit, detail, peak, least)

    def _keeps_order(self, plan: PlannedSequence) -> bool:
        return tuple(dict.fromkeys(plan.sequence)) == self.source.start.sequence
