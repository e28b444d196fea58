"""Which search answers which question: the least time within bytes, the fewest bytes within a time, order alone."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from neaptide.ask import DEFAULT_STRATEGY
from neaptide.budget import Budget
from neaptide.errors import UsageError
from neaptide.outcome import Limits, Outcome, Termination, TerminationReason
from neaptide.planner.atomic import AtomicStep
from neaptide.planner.failed_stages import Stage
from neaptide.planner.graphs.own_schedule import no_worse_than
from neaptide.planner.objective import PlannedSequence, PlanningProblem
from neaptide.planner.portfolio import plan_sequence
from neaptide.planner.recompute.curve.least_memory import least_memory, least_memory_by
from neaptide.planner.strategies import NAMES, canonical_name, strategy
from neaptide.planner.strategies.program_order import baseline
from neaptide.schedule.problem import StepProblem

STRATEGIES: Final = (DEFAULT_STRATEGY, *NAMES)
_FREE_STRATEGY: Final = "best_order"  # by order alone: what is done without a budget
_ATOMIC_STRATEGY: Final = "greedy_recompute"  # the one that keeps to the order it is started from


def check_strategy(name: str, *, atomic: bool) -> None:
    """Refuse the name of a strategy that there is not, or that cannot do what is asked."""
    if canonical_name(name) not in STRATEGIES:
        raise UsageError(
            f"no strategy is called {name!r}", next_step=f"choose one of {', '.join(STRATEGIES)}"
        )
    if atomic and canonical_name(name) not in (DEFAULT_STRATEGY, _ATOMIC_STRATEGY):
        raise UsageError(
            f"the strategy {name!r} cannot make an atomic plan",
            why="it may place updates before operations that can fail",
            next_step=f"leave the strategy out, or use {_ATOMIC_STRATEGY!r}",
        )


@dataclass(frozen=True)
class GraphSearch:
    """What is searched for, and how."""

    step: StepProblem  # the program; of an atomic step the one without its copies
    whole: AtomicStep | None  # of an atomic step; None for a usual one
    budget: Budget
    allowed: int
    limits: Limits
    strategy_name: str  # `default` for the portfolio, or one of `strategies.NAMES`
    own: PlannedSequence | None  # the schedule that the user wrote; the answer is never worse
    check: Callable[[Sequence[int]], None]  # raises for a sequence that is not legal
    interrupt: threading.Event | None
    known: tuple[PlannedSequence, ...] = ()  # plans that were found before, to begin with

    @property
    def searched(self) -> StepProblem:
        """The problem that is searched: with the copies that an atomic step keeps."""
        return self.step if self.whole is None else self.whole.step

    @property
    def start(self) -> tuple[int, ...]:
        """The order that there is in any case."""
        return tuple(range(self.step.node_count)) if self.whole is None else self.whole.order

    def longest(self) -> float | None:
        """Seconds within which the lowest peak is asked for; None where the least time is."""
        if self.budget.peak is not None and not self.budget.is_min:
            return None
        limit = self.budget.resolve_latency(baseline(self.step).seconds)
        return math.inf if limit is None and self.budget.is_min else limit

    def run(self) -> Outcome[PlannedSequence]:
        """The best plan found; the order that there is in any case where the search fails."""
        name = self.strategy_name
        # Of several strategies each can be cut by itself; one alone has nothing beside it.
        is_alone, longest = name != DEFAULT_STRATEGY, self.longest()
        with Stage(f"the strategy {name}" if is_alone else "the search", can_be_cut=is_alone):
            if longest is not None:
                outcome = self._lowest(longest)
            elif is_alone:
                outcome = self._by(name)
            elif self.budget.is_none and self.whole is None:
                outcome = self._no_worse_than_own(self._by(_FREE_STRATEGY))
            else:
                outcome = plan_sequence(
                    self.searched,
                    self.allowed,
                    self.limits,
                    interrupt=self.interrupt,
                    order=None if self.whole is None else self.whole.order,
                    check=self.check,
                    known=self._known(),
                )
                outcome = self._no_worse_than_own(outcome)
            self.check(outcome.require().sequence)
            return outcome
        if self.budget.is_min and self.whole is None and longest == math.inf:
            with Stage("the portfolio", can_be_cut=False):
                least = self.step.lower_bound_bytes
                return plan_sequence(
                    self.step, least, self.limits, interrupt=self.interrupt, check=self.check
                )
        return self.nothing_found()

    def _lowest(self, longest: float) -> Outcome[PlannedSequence]:
        asked = (self.searched, longest, self.limits, self.interrupt)
        order = None if self.whole is None else self.whole.order
        if self.strategy_name != DEFAULT_STRATEGY:
            return least_memory_by(self.strategy_name, *asked, order=order, check=self.check)
        return least_memory(*asked, order=order, known=self._known(), check=self.check)

    def _by(self, name: str) -> Outcome[PlannedSequence]:
        problem = PlanningProblem(self.searched, self.allowed, start=self.start)
        return strategy(name)(problem, self.limits, self.interrupt)

    def nothing_found(self) -> Outcome[PlannedSequence]:
        """The order that there is in any case, as the outcome of a search that failed."""
        found = PlannedSequence.evaluate(self.searched, self.start, "program_order")
        peak, bound = found.peak_with_workspace_bytes, self.searched.lower_bound_bytes
        reason = TerminationReason.FEASIBLE if peak <= self.allowed else TerminationReason.NO_SOLUTION_FOUND
        detail = "the search failed"
        if self.interrupt is not None and self.interrupt.is_set():
            reason, detail = TerminationReason.INTERRUPTED, "the search was interrupted"
        return Outcome(found, Termination(reason, None, detail, peak, bound))

    def _known(self) -> tuple[PlannedSequence, ...]:
        """Plans that there are before the search; none of an atomic step, which has other steps."""
        if self.whole is not None:
            return ()
        return self.known if self.own is None else (self.own, *self.known)

    def _no_worse_than_own(self, outcome: Outcome[PlannedSequence]) -> Outcome[PlannedSequence]:
        if self.own is not None and self.whole is None:
            with Stage("the improvement of the step's own checkpoints"):
                found = no_worse_than(self.own, outcome, self.step, self.allowed, self.limits, self.interrupt)
                self.check(found.require().sequence)
                return found
        return outcome
