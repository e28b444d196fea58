"""Retention tables of a rule, tried one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from neaptide.outcome import LimitGuard, Outcome
from neaptide.planner.objective import PlannedSequence, PlanningProblem
from neaptide.planner.recompute.chain.plans import BackwardPart, carry_out
from neaptide.planner.recompute.units import ForwardUnits


def conclude(
    problem: PlanningProblem,
    guard: LimitGuard,
    name: str,
    forward: ForwardUnits,
    tables: Iterable[Sequence[BackwardPart]],
    detail: str,
    *,
    first_fit: bool = False,
) -> Outcome[PlannedSequence]:
    """The best of some retention tables and of the start; with `first_fit`, none is tried after one that fits."""
    best = best_of(problem, forward, tables, guard, name, first_fit=first_fit)
    return guard.finish(best, best=best.seconds, detail=detail)


def best_of(
    problem: PlanningProblem,
    forward: ForwardUnits,
    tables: Iterable[Sequence[BackwardPart]],
    guard: LimitGuard,
    name: str,
    *,
    first_fit: bool = False,
) -> PlannedSequence:
    """The best of some tables, carried out, and of the start itself; `first_fit` ends with the first that fits."""
    best = PlannedSequence.evaluate(problem.step, problem.first_sequence(), name)
    for table in tables:
        if guard.check_now() is not None:
            break
        found = carry_out(problem, forward, table, guard, name)
        if found.rank(problem.budget_bytes) < best.rank(problem.budget_bytes):
            best = found
        if first_fit and found.peak_with_workspace_bytes <= problem.budget_bytes:
            break
    return best
