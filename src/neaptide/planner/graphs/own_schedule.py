"""The schedule that the user wrote, with activation checkpointing of his own, beside what a search found."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from neaptide.ir.graph import Graph
from neaptide.ir.registry import OpRegistry
from neaptide.outcome import Limits, Outcome, Termination, TerminationReason
from neaptide.planner.objective import PlannedSequence, PlanningProblem
from neaptide.planner.strategies import strategy
from neaptide.planner.strategies.program_order import baseline
from neaptide.schedule.checkpointed import checkpointed_sequence
from neaptide.schedule.problem import StepProblem

_IMPROVER: Final = "lagrangian"


def as_written(
    graph: Graph,
    step: StepProblem,
    registry: OpRegistry,
    checkpoints: Sequence[Sequence[int]],
) -> PlannedSequence:
    """A program as eager runs it: in program order, with the user's own activation checkpointing.

    Where that is higher than without (it can be, at another step), it is the program without.
    """
    plain = baseline(step)
    if not checkpoints:
        return plain
    sequence = checkpointed_sequence(graph, step, registry, checkpoints)
    found = PlannedSequence.evaluate(step, sequence, "as_written")
    return min(plain, found, key=lambda made: made.peak_with_workspace_bytes)


def no_worse_than(
    own: PlannedSequence,
    outcome: Outcome[PlannedSequence],
    step: StepProblem,
    budget_bytes: int,
    limits: Limits,
    interrupt: threading.Event | None = None,
) -> Outcome[PlannedSequence]:
    """The outcome of a search, or the user's own schedule, improved with what the search left of the limits, where that is better."""
    if outcome.require().rank(budget_bytes) <= own.rank(budget_bytes):
        return outcome
    start = PlanningProblem(step, budget_bytes, start=own.sequence)
    improved = strategy(_IMPROVER)(start, limits.after(outcome.seconds, outcome.work), interrupt)
    best = min(own, improved.require(), key=lambda made: made.rank(budget_bytes))
    return Outcome(
        best,
        _ending(best, outcome.termination, improved.termination, budget_bytes),
        outcome.seconds + improved.seconds,
        outcome.work + improved.work,
    )


def _ending(
    best: PlannedSequence, searched: Termination, improved: Termination, budget_bytes: int
) -> Termination:
    """Within the budget nothing is known of the least time of this order; above it the bounds on bytes still hold."""
    if best.peak_with_workspace_bytes > budget_bytes:
        return replace(searched, best=best.peak_with_workspace_bytes)
    detail = "begun from the activation checkpointing in the code of the step"
    return Termination(TerminationReason.FEASIBLE, improved.limit, detail, best.seconds)
