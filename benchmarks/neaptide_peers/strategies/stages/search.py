"""What the exact strategies on plans in stages share: where they start, and how a table becomes an answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from neaptide.outcome import LimitGuard, Outcome, Termination, TerminationReason
from neaptide.planner.objective import PlannedSequence, PlanningProblem
from neaptide.planner.recompute.units import StageUnits
from neaptide.planner.strategies.greedy_recompute import GreedyRecompute


def started_from(problem: PlanningProblem, name: str) -> PlannedSequence:
    """The start as an answer."""
    return PlannedSequence.evaluate(problem.step, problem.first_sequence(), name)


def is_free(problem: PlanningProblem, start: PlannedSequence) -> bool:
    """Whether the start is within the budget without recomputation: nothing is faster."""
    fits = start.peak_with_workspace_bytes <= problem.budget_bytes
    return fits and len(start.sequence) == problem.step.node_count


def carried_out(
    problem: PlanningProblem,
    guard: LimitGuard,
    units: StageUnits,
    repeated: Sequence[Sequence[int]],
    name: str,
) -> PlannedSequence:
    """The sequence of a table, by stage, of units that run again; repaired where it is above the budget.

    That can only be where units with several nodes run again side by side, which the models take one by one, or where
    a solver's tolerance is more than the smallest storage.
    """
    items = ((stage, unit) for stage, again in enumerate(repeated) for unit in again)
    found = PlannedSequence.evaluate(problem.step, units.sequence(items), name)
    if found.peak_with_workspace_bytes <= problem.budget_bytes:
        return found
    search = GreedyRecompute(replace(problem, start=found.sequence), guard)
    search.descend()
    search.put_back()
    return PlannedSequence.evaluate(problem.step, search.evaluator.sequence(), name)


def best_of(
    problem: PlanningProblem, start: PlannedSequence, found: Sequence[PlannedSequence], name: str
) -> PlannedSequence:
    """The best of the start and what was found."""
    best = min((start, *found), key=lambda plan: plan.rank(problem.budget_bytes))
    if best is start:
        return start
    return replace(best, strategy=name)


def handed_back(
    problem: PlanningProblem, guard: LimitGuard, start: PlannedSequence, why: str
) -> Outcome[PlannedSequence]:
    """The start, and why it was not worked on."""
    bound = start.seconds if is_free(problem, start) else None
    return guard.finish(start, best=start.seconds, bound=bound, detail=why)


def ended(
    guard: LimitGuard,
    value: PlannedSequence,
    reason: TerminationReason,
    limit: str | None,
    detail: str,
    bound: float | None,
) -> Outcome[PlannedSequence]:
    """An outcome whose bound is never above its value."""
    kept = None if bound is None else min(bound, value.seconds)
    return Outcome(
        value, Termination(reason, limit, detail, value.seconds, kept), guard.seconds(), guard.work
    )
