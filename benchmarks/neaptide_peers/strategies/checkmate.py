"""Checkmate (Jain et al., MLSys 2020): the integer program over stages, solved by branch and bound. Small graphs only.

The program has a variable for each unit in each stage and is solved by HiGHS, which the interrupt cannot stop; its
time limit can. Best and bound are those of plans in stages (`neaptide.planner.recompute.units`) with this order of first
executions, and the answer says so.
"""

from __future__ import annotations

import math
import threading
from typing import Final

from neaptide.outcome import LimitGuard, Limits, Outcome, TerminationReason
from neaptide.planner.objective import PlannedSequence, PlanningProblem
from neaptide.planner.recompute.units import stage_units
from neaptide_peers.strategies.stages.program import StageProgram, StageSolution, Verdict
from neaptide_peers.strategies.stages.search import (
    best_of,
    carried_out,
    ended,
    handed_back,
    is_free,
    started_from,
)

NAME: Final = "checkmate"
MOST_CHOICES: Final = 12_000
"""Pairs of a unit and a stage in which it may run again: about 150 units. Branch and bound is lost above it."""
_MOST_NODES: Final = 5000  # of the search tree; a unit of work each
_MOST_SECONDS: Final = 120.0  # where neither time nor work is limited: one relaxation may take a minute
_EPSILON: Final = 1e-5  # more than what the bound gives away for the solver's rounding
_SPACE: Final = "plans in stages with this order of first executions"


def solve(
    problem: PlanningProblem, limits: Limits, interrupt: threading.Event | None = None
) -> Outcome[PlannedSequence]:
    """The fastest plan in stages, or the best that the solver comes to; at worst the start.

    `OPTIMAL` and the bound are relative to plans in stages. A start with recomputations that is within the budget
    prunes the search, and its order of first executions is kept.
    """
    guard = LimitGuard(limits, interrupt)
    step = problem.step
    start = started_from(problem, NAME)
    if is_free(problem, start):
        return handed_back(problem, guard, start, "the start is within the budget")
    units = stage_units(step, tuple(dict.fromkeys(start.sequence)))
    choices = units.choices()
    if choices > MOST_CHOICES:
        why = f"too large: {choices} units and stages that they may run again in, above {MOST_CHOICES}"
        return handed_back(problem, guard, start, why)
    if guard.check_now() is not None:
        return handed_back(problem, guard, start, "no time was left")
    program = StageProgram(units, problem.budget_bytes)
    relaxed = program.relaxed_seconds(_time_left(guard))
    if relaxed == math.inf:
        return _none_fits(guard, start, "the relaxation has no solution")
    fits = start.peak_with_workspace_bytes <= problem.budget_bytes
    most = start.seconds - step.baseline_seconds if fits else None
    work = _MOST_NODES if limits.work is None else min(_MOST_NODES, limits.work - guard.work)
    if guard.check_now() is not None or work <= 0:
        solution = StageSolution(Verdict.STOPPED, None, 0.0, 0)
    else:
        solution = program.solve(nodes=work, time_s=_time_left(guard), at_most_s=most)
        guard.exhausted(solution.nodes)
    if solution.verdict is Verdict.INFEASIBLE and not fits:
        return _none_fits(guard, start, "the program has no solution")
    found = []
    if solution.repeated is not None:
        found.append(carried_out(problem, guard, units, solution.repeated, NAME))
    best = best_of(problem, start, found, NAME)
    least = max(relaxed or 0.0, solution.bound if solution.verdict is not Verdict.INFEASIBLE else 0.0)
    note = "" if relaxed is None else f"; its relaxation has {relaxed:.3e} s of recomputation"
    bound = step.baseline_seconds + least
    is_within = best.peak_with_workspace_bytes <= problem.budget_bytes
    if solution.verdict is Verdict.INFEASIBLE:
        # Nothing in stages is faster than the start, which is faster than the program can say.
        return ended(
            guard, best, TerminationReason.FEASIBLE, None, f"none of the {_SPACE} is faster{note}", None
        )
    is_best = best.seconds - bound <= _EPSILON * max(best.seconds - step.baseline_seconds, *step.seconds)
    if is_within and is_best and solution.verdict is Verdict.PROVED:
        return ended(
            guard, best, TerminationReason.OPTIMAL, None, f"the fastest of the {_SPACE}{note}", bound
        )
    stopped = guard.check_now()
    reason = TerminationReason.FEASIBLE if is_within else TerminationReason.NO_SOLUTION_FOUND
    if stopped == "interrupt":
        reason = TerminationReason.INTERRUPTED
    limit = stopped if stopped in {"time", "work"} else None
    return ended(guard, best, reason, limit, f"the bound is of {_SPACE}{note}", bound)


def _time_left(guard: LimitGuard) -> float | None:
    """Seconds for the solver; a work limit alone is kept free of the clock."""
    left = guard.remaining_s()
    if left is None and guard.limits.work is None:
        return max(_MOST_SECONDS - guard.seconds(), 1.0)
    return left


def _none_fits(guard: LimitGuard, start: PlannedSequence, why: str) -> Outcome[PlannedSequence]:
    """Other plans may fit: in another order, or with repetitions in another order."""
    detail = f"none of the {_SPACE} is within the budget: {why}"
    return ended(guard, start, TerminationReason.NO_SOLUTION_FOUND, None, detail, None)
