"""Moccasin (Bartan et al., ICML 2023): retention intervals in CP-SAT, started from the best plan so far.

CP-SAT runs in a process of its own and needs the extra `exact`. Best and bound are those of plans in stages
(`neaptide.planner.recompute.units`) with this order of first executions in which a unit runs at most twice, those of the
backward and outputs once.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Final

from neaptide.linear.tolerances import GIVEN_AWAY
from neaptide.outcome import LimitGuard, Limits, Outcome, TerminationReason
from neaptide.planner.objective import PlannedSequence, PlanningProblem
from neaptide.planner.recompute.units import stage_units
from neaptide.planner.strategies import greedy_recompute
from neaptide_peers.cp_sat.solve import WORK_PER_SECOND
from neaptide_peers.cp_sat.solve import solve as solve_model
from neaptide_peers.strategies.stages.interval_model import IntervalModel
from neaptide_peers.strategies.stages.search import (
    best_of,
    carried_out,
    ended,
    handed_back,
    is_free,
    started_from,
)

NAME: Final = "moccasin"
MOST_CHOICES: Final = 250_000
"""Pairs of a unit and a stage in which it may run again: about 700 units. The model itself takes long above it."""
_MOST_WORK: Final = 60 * WORK_PER_SECOND  # where neither time nor work is limited
_SPACE: Final = "plans in stages with this order of first executions and at most two runs of a unit"


def solve(
    problem: PlanningProblem, limits: Limits, interrupt: threading.Event | None = None
) -> Outcome[PlannedSequence]:
    """The fastest plan of retention intervals, or the best that the solver comes to; at worst the start.

    It begins with the start, if that has recomputations and is within the budget, else with the greedy search's
    answer. `OPTIMAL` and the bound are relative to its plans.

    Raises:
        MissingExtra: OR-tools is not installed.
        SolverError: the solver died.
    """
    guard = LimitGuard(limits, interrupt)
    step = problem.step
    start = started_from(problem, NAME)
    if is_free(problem, start):
        return handed_back(problem, guard, start, "the start is within the budget")
    warm = start
    if start.peak_with_workspace_bytes > problem.budget_bytes:
        greedy = greedy_recompute.solve(problem, guard.left(), interrupt)
        guard.exhausted(greedy.work)
        warm = greedy.require()
    units = stage_units(step, tuple(dict.fromkeys(warm.sequence)))
    choices = units.choices()
    if choices > MOST_CHOICES:
        why = f"too large: {choices} units and stages that they may run again in, above {MOST_CHOICES}"
        return handed_back(problem, guard, start, why)
    fits = warm.peak_with_workspace_bytes <= problem.budget_bytes
    if step.persistent_bytes > problem.budget_bytes:
        return handed_back(problem, guard, start, "what the caller owns is above the budget")
    model = IntervalModel(
        units,
        problem.budget_bytes,
        hint=warm.sequence,
        at_most_s=warm.seconds - step.baseline_seconds if fits else None,
    )
    outcome = solve_model(model.model, _for_solver(guard), interrupt=interrupt)
    guard.exhausted(outcome.work)
    found = [warm]
    if outcome.value is not None:
        found.append(carried_out(problem, guard, units, model.repeated(outcome.value.values), NAME))
    best = best_of(problem, start, found, NAME)
    said = outcome.termination
    is_within = best.peak_with_workspace_bytes <= problem.budget_bytes
    if said.reason is TerminationReason.INFEASIBLE:
        reason = TerminationReason.FEASIBLE if is_within else TerminationReason.NO_SOLUTION_FOUND
        word = "faster" if is_within else "within the budget"
        return ended(guard, best, reason, None, f"none of the {_SPACE} is {word}", None)
    bound = None if said.bound is None else step.baseline_seconds + model.seconds(float(said.bound))
    is_best = bound is not None and best.seconds - bound <= GIVEN_AWAY * best.seconds
    if is_within and is_best and said.reason is TerminationReason.OPTIMAL:
        return ended(guard, best, TerminationReason.OPTIMAL, None, f"the fastest of the {_SPACE}", bound)
    reason = TerminationReason.FEASIBLE
    if said.reason is TerminationReason.INTERRUPTED:
        reason = TerminationReason.INTERRUPTED
    elif not is_within:
        reason = TerminationReason.NO_SOLUTION_FOUND
    return ended(guard, best, reason, said.limit, f"the bound is of {_SPACE}", bound)


def _for_solver(guard: LimitGuard) -> Limits:
    left = guard.left()
    if left.time_s is None and left.work is None:
        return replace(left, work=_MOST_WORK)
    return left
