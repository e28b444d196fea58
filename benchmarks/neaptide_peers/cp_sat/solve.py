"""Solves constraint models with CP-SAT, in a process of its own."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import Final

from neaptide.errors import SolverError, VerifyError
from neaptide.outcome import Limits, Outcome, Stopwatch, Termination, TerminationReason
from neaptide_peers.cp_sat.check import check_solution
from neaptide_peers.cp_sat.messages import SolveRequest
from neaptide_peers.cp_sat.model import CpModel, CpSolution, beyond_64_bits, value_of
from neaptide_peers.cp_sat.process import Conversation, WorkerProcess

WORK_PER_SECOND: Final = 10_000
"""Units of work in one second of the solver's deterministic time, which is a rough one: it is a fifth of a wall-clock
second or less on small linear models, and a fiftieth on rectangles with one worker."""

_EXACT_DOUBLE: Final = 1 << 53
_STATUSES: Final = frozenset({"OPTIMAL", "FEASIBLE", "INFEASIBLE", "UNKNOWN"})


def solve(
    model: CpModel,
    limits: Limits | None = None,
    *,
    workers: int = 1,
    interrupt: threading.Event | None = None,
) -> Outcome[CpSolution]:
    """Solve a model. Starting the solver takes about a second, which counts.

    Under a work limit alone, a seed gives the same answer every time.

    Args:
        model: what to solve.
        limits: of wall-clock time and of work (`WORK_PER_SECOND`).
        workers: threads of the solver.
        interrupt: when set, the solver is ended, and the best solution so far is returned.

    Returns:
        `OPTIMAL`: the solution is proved best (any solution, if the model minimises nothing). `FEASIBLE`: a solution
        without proof. `INFEASIBLE`: proved that there is none. `NO_SOLUTION_FOUND`: neither. `best` and `bound` are
        in the unit of the objective; `work` is 0 where the solver had to be ended.

    Raises:
        MissingExtra: OR-tools is not installed.
        SolverError: the worker died.
        VerifyError: the model is malformed, or a solution of the solver breaks it.
    """
    with CpSatSession(workers=workers) as session:
        return session.solve(model, limits, stop=None if interrupt is None else interrupt.is_set)


def solve_all(
    models: Sequence[CpModel],
    limits: Limits | None = None,
    *,
    workers: int = 1,
    interrupt: threading.Event | None = None,
) -> list[Outcome[CpSolution]]:
    """Solve several models one after another in one process; limits are for all of them together.

    Raises:
        MissingExtra: OR-tools is not installed.
        SolverError: the worker died.
        VerifyError: a model is malformed, or a solution of the solver breaks it.
    """
    limits = limits or Limits()
    watch = Stopwatch()
    outcomes: list[Outcome[CpSolution]] = []
    with CpSatSession(workers=workers) as session:
        for model in models:
            left = limits.after(watch.seconds(), sum(outcome.work for outcome in outcomes))
            outcomes.append(session.solve(model, left, stop=None if interrupt is None else interrupt.is_set))
    return outcomes


class CpSatSession:
    """A running solver, for several models; use as a context manager. The process starts with the first model.

    Args:
        workers: threads of the solver.
    """

    def __init__(self, *, workers: int = 1) -> None:
        self._workers = workers
        self._process = WorkerProcess()

    def __enter__(self) -> CpSatSession:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.dispose()

    def solve(
        self, model: CpModel, limits: Limits | None = None, *, stop: Callable[[], bool] | None = None
    ) -> Outcome[CpSolution]:
        """Solve a model; as the function `solve`, with `stop` asked again and again in place of an interrupt."""
        limits = limits or Limits()
        watch = Stopwatch()
        too_large = beyond_64_bits(model)
        if too_large is not None:
            detail = f"{too_large} exceeds 64 bits, which CP-SAT cannot count with"
            return Outcome(
                None, Termination(TerminationReason.NO_SOLUTION_FOUND, detail=detail), watch.seconds()
            )
        for limit, left in (("time", limits.time_s), ("work", limits.work)):
            if left is not None and left <= 0:
                return Outcome(None, Termination(TerminationReason.NO_SOLUTION_FOUND, limit), watch.seconds())

        def request(time_s: float | None) -> SolveRequest:
            work_s = None if limits.work is None else limits.work / WORK_PER_SECOND
            return SolveRequest(model, time_s, work_s, limits.seed, self._workers)

        said = self._process.solve(request, limits.time_s, stop)
        return _outcome(model, limits, said, watch)


def _outcome(model: CpModel, limits: Limits, said: Conversation, watch: Stopwatch) -> Outcome[CpSolution]:
    status = "UNKNOWN" if said.ended is None else said.ended.status
    if said.ended is not None and status == "MODEL_INVALID":
        raise VerifyError("CP-SAT refuses the model", why=said.ended.detail)
    if status not in _STATUSES:
        raise SolverError(f"CP-SAT ended with the unknown status {status!r}")
    solution = None
    if said.values is not None:
        check_solution(model, said.values)
        objective = 0 if model.objective is None else value_of(model.objective, said.values)
        solution = CpSolution(said.values, objective)
    if (solution is None) == (status in {"OPTIMAL", "FEASIBLE"}) and said.ended is not None:
        raise SolverError(f"CP-SAT ended with {status}, which does not fit what it has found")
    best = None if solution is None or model.objective is None else solution.objective
    bound = None if said.bound is None else _whole(said.bound)
    if best is not None and (status == "OPTIMAL" or (bound is not None and bound > best)):
        bound = best
    work = 0 if said.ended is None else math.ceil(said.ended.deterministic_s * WORK_PER_SECOND)
    limit = None
    if status == "OPTIMAL" or (best is not None and best == bound):
        reason = TerminationReason.OPTIMAL
    elif status == "INFEASIBLE":
        reason, bound = TerminationReason.INFEASIBLE, None
    elif said.stopped_by == "interrupt":
        reason = TerminationReason.INTERRUPTED
    else:
        reason = TerminationReason.NO_SOLUTION_FOUND if solution is None else TerminationReason.FEASIBLE
        limit = said.stopped_by or _limit_hit(limits, work, watch.seconds())
    return Outcome(solution, Termination(reason, limit, best=best, bound=bound), watch.seconds(), work)


def _whole(bound: float) -> int | None:
    """The bound of an objective of integers, which the solver gives as a double: never above what it meant."""
    if not math.isfinite(bound):
        return None
    return math.floor(bound if abs(bound) < _EXACT_DOUBLE else math.nextafter(bound, -math.inf))


def _limit_hit(limits: Limits, work: int, seconds: float) -> str | None:
    """Which limit a search that ended by itself had run into: the one it has used more of."""
    used = {
        name: spent / limit
        for name, spent, limit in (("time", seconds, limits.time_s), ("work", work, limits.work))
        if limit is not None
    }
    return max(used, key=lambda name: used[name]) if used else None
