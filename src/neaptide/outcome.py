"""What every search takes and returns: limits, and a result with the reason why the search ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from neaptide.errors import UsageError

T = TypeVar("T")


class TerminationReason(StrEnum):
    """Why a search ended.

    `OPTIMAL`: its value is proved best. `FEASIBLE`: it has a value, without proof. `INFEASIBLE`: proved that there is
    no value. `NO_SOLUTION_FOUND`: none found, none excluded. `INTERRUPTED`: the user stopped it; the value is the best
    so far.
    """

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    NO_SOLUTION_FOUND = "no_solution_found"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class Termination:
    """How a search ended."""

    reason: TerminationReason
    limit: str | None = None  # which it ran into: `time`, `work`, or None
    detail: str = ""  # one sentence for the user
    best: float | int | None = None  # objective of the value found, in its unit
    bound: float | int | None = None  # no value is better than this

    @property
    def gap(self) -> float | None:
        """Distance of `best` from `bound` as a fraction of `best`; None when either is unknown.

        >>> Termination(TerminationReason.FEASIBLE, best=10, bound=8).gap
        0.2
        """
        if self.best is None or self.bound is None:
            return None
        if self.best == self.bound:
            return 0.0
        return abs(self.best - self.bound) / abs(self.best) if self.best else float("inf")

    @property
    def is_proved(self) -> bool:
        """Whether a longer search could not change the answer."""
        return self.reason in {TerminationReason.OPTIMAL, TerminationReason.INFEASIBLE}


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """The result of a search: the best value found, or None.

    A limit of work is kept, gives the same again under the same seed, and nothing worse where it is higher. A search that is
    interrupted says so, unless its answer is proved. `tests/test_search_conformance.py` holds searches to this.
    """

    value: T | None
    termination: Termination
    seconds: float = 0.0  # wall-clock
    work: int = 0  # steps that it took, in the solver's own unit; the same on every machine

    def require(self) -> T:
        """The value; for callers that know there is one (a portfolio with the baseline in it)."""
        if self.value is None:
            raise ValueError(f"the search has no value: {self.termination.reason}")
        return self.value


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a search may run; None means without limit."""

    time_s: float | None = None  # wall-clock
    work: int | None = None  # steps of the solver, for answers that do not depend on the machine
    seed: int = 0
    # Of what is searched for. With a limit of time a search ends where it has taken longer than a faster
    # answer may save in all of them.
    runs: int | None = None

    def pays(self, seconds: float, spent_s: float) -> bool:
        """Whether a search is worth its time: the seconds that it may save in a run, beside those that it has taken so far.

        >>> Limits(time_s=20.0, runs=100).pays(0.01, 0.5), Limits(time_s=20.0, runs=100).pays(0.01, 1.5)
        (True, False)
        """
        return self.runs is None or self.time_s is None or self.runs * seconds > spent_s

    def after(self, seconds: float, work: int = 0) -> Limits:
        """What is left of the limits after so much of them, never negative.

        >>> Limits(time_s=2.0, work=5).after(0.5, 7)
        Limits(time_s=1.5, work=0, seed=0, runs=None)
        """
        time_left = None if self.time_s is None else max(0.0, self.time_s - seconds)
        work_left = None if self.work is None else max(0, self.work - work)
        return Limits(time_left, work_left, self.seed, self.runs)

    def part(self, share: float) -> Limits:
        """A share of the time and of the work, for one of several searches; the same seed.

        >>> Limits(time_s=2.0, work=5).part(0.5)
        Limits(time_s=1.0, work=2, seed=0, runs=None)
        """
        time_s = None if self.time_s is None else share * self.time_s
        work = None if self.work is None else max(int(share * self.work), 1)
        return Limits(time_s, work, self.seed)


class Stopwatch:
    """Wall-clock seconds since it was made."""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    def seconds(self) -> float:
        """Seconds so far."""
        return time.perf_counter() - self._start


class LimitGuard:
    """Counts work and says when a search must stop. Looks at the clock once in 64 questions.

    >>> guard = LimitGuard(Limits(work=2))
    >>> [guard.exhausted() for _ in range(3)]
    [None, None, 'work']
    """

    _STRIDE = 64

    def __init__(self, limits: Limits, interrupt: threading.Event | None = None) -> None:
        self.limits = limits
        self.work = 0
        self._interrupt = interrupt
        self._watch = Stopwatch()
        self._unchecked = 0
        self._verdict: str | None = None

    def exhausted(self, work: int = 1) -> str | None:
        """Charge some work and say what has run out: `time`, `work`, `interrupt`, or None to go on.

        Once it has said stop it keeps saying so. Work that hits the limit exactly is still allowed.
        """
        if self._verdict is not None:
            return self._verdict
        if self.limits.work is not None and self.work + work > self.limits.work:
            self._verdict = "work"
            return self._verdict
        self.work += work
        if self._unchecked == 0:
            self._verdict = self._check()
        self._unchecked = (self._unchecked + 1) % self._STRIDE
        return self._verdict

    def check_now(self) -> str | None:
        """Like `exhausted`, free of charge and always with a look at the clock: for solvers with long steps."""
        if self._verdict is None:
            self._verdict = self._check()
        return self._verdict

    def seconds(self) -> float:
        """Seconds since the search began."""
        return self._watch.seconds()

    def remaining_s(self) -> float | None:
        """Seconds left, never negative; None without a limit. For handing on to an inner solver."""
        if self.limits.time_s is None:
            return None
        return max(0.0, self.limits.time_s - self.seconds())

    def left(self, parts: int = 1) -> Limits:
        """Limits for an inner search: one of so many equal parts of what is left."""
        left = self.limits.after(self.seconds(), self.work)
        return Limits(
            None if left.time_s is None else left.time_s / parts,
            None if left.work is None else left.work // parts,
            left.seed,
        )

    def _check(self) -> str | None:
        if self._interrupt is not None and self._interrupt.is_set():
            return "interrupt"
        if self.limits.time_s is not None and self.seconds() >= self.limits.time_s:
            return "time"
        return None

    def finish(
        self,
        value: T | None,
        *,
        complete: bool = False,
        best: float | None = None,
        bound: float | None = None,
        detail: str = "",
    ) -> Outcome[T]:
        """The outcome of the search that this guard watched.

        Args:
            value: the best found, or None.
            complete: the search space is exhausted, so the value is optimal (or there is none).
            best: objective of the value.
            bound: lower bound of the objective; a value that meets it is optimal.
            detail: one sentence for the user.
        """
        met = best is not None and bound is not None and best <= bound
        if value is not None and (complete or met):
            reason = TerminationReason.OPTIMAL
            bound = best if bound is None or complete else bound
        elif complete:
            reason = TerminationReason.INFEASIBLE
        elif self._verdict == "interrupt":
            reason = TerminationReason.INTERRUPTED
        else:
            reason = TerminationReason.NO_SOLUTION_FOUND if value is None else TerminationReason.FEASIBLE
        limit = self._verdict if self._verdict in {"time", "work"} else None
        return Outcome(value, Termination(reason, limit, detail, best, bound), self.seconds(), self.work)


def left_out(without: Iterable[str], stages: Iterable[str]) -> frozenset[str]:
    """Stages of a search that are not wanted, by name."""
    names = tuple(dict.fromkeys(stages))
    chosen = frozenset(without)
    if unknown := sorted(chosen.difference(names)):
        raise UsageError(f"no stage is called {unknown[0]!r}", next_step=f"choose from {', '.join(names)}")
    return chosen
