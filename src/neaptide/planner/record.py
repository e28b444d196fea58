"""What a search found, as the plain data of a plan."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from neaptide.outcome import Outcome, Termination
from neaptide.planner.arena_order import PlannedArena
from neaptide.planner.moves import Move, MoveKind
from neaptide.planner.objective import PlannedSequence
from neaptide.planner.strategies.program_order import baseline
from neaptide.plans import MovesSummary, PlannedProgram, Predictions, Recomputation, TerminationRecord
from neaptide.schedule.problem import StepProblem


def planned_program(
    step: StepProblem,
    outcome: Outcome[PlannedSequence],
    *,
    fingerprint: str,
    budget_bytes: int,
    role: str = "steady",
    name: str = "",
    arena: PlannedArena | None = None,
    random_state_bytes: int = 0,
) -> PlannedProgram:
    """The entry of a plan for the sequence that a search found.

    Args:
        step: the problem that was searched.
        outcome: of the search; it must have a value.
        fingerprint: of the graph.
        budget_bytes: the limit that was asked for.
        role: which program of the step it is.
        name: of the graph.
        arena: of the sequence, where it has been laid out.
        random_state_bytes: of what is kept on the host to draw the same numbers again.
    """
    found = outcome.require()
    before = baseline(step)
    return PlannedProgram(
        role=role,
        name=name,
        fingerprint=fingerprint,
        node_count=step.node_count,
        sequence=found.sequence,
        strategy=found.strategy,
        budget_bytes=budget_bytes,
        moves=summarise_moves(found.moves, found.sequence),
        predictions=Predictions(
            peak_bytes=found.peak_bytes,
            peak_with_workspace_bytes=found.peak_with_workspace_bytes,
            baseline_peak_bytes=before.peak_bytes,
            baseline_peak_with_workspace_bytes=before.peak_with_workspace_bytes,
            resident_bytes=step.resident_bytes,
            lower_bound_bytes=step.lower_bound_bytes,
            order_lower_bound_bytes=step.order_lower_bound_bytes,
            seconds=found.seconds,
            baseline_seconds=before.seconds,
            arena_bytes=0 if arena is None else arena.arena_bytes,
            arena_lower_bound_bytes=0 if arena is None else arena.lower_bound_bytes,
            random_state_bytes=random_state_bytes,
        ),
        termination=_record(outcome.termination),
    )


def summarise_moves(moves: tuple[Move, ...], sequence: Sequence[int] = ()) -> MovesSummary:
    """Moves as a plan keeps them, and how far the order of first executions is from program order."""
    updates = [move for move in moves if move.kind is MoveKind.REORDER]
    return MovesSummary(
        updates_moved_earlier=len(updates),
        moved=tuple(move.name for move in updates),
        recomputations=tuple(
            Recomputation(
                move.target,
                move.name,
                move.target_bytes,
                move.predicted_delta_seconds,
                move.nodes,
                move.before,
            )
            for move in moves
            if move.kind is MoveKind.RECOMPUTE
        ),
        operations_moved=_operations_moved(tuple(dict.fromkeys(sequence))),
    )


def _operations_moved(order: Sequence[int]) -> int:
    """Nodes that are not in a longest ascending run of the order. O(n log n) (patience sorting)."""
    tails: list[int] = []
    for node in order:
        place = bisect_left(tails, node)
        tails[place : place + 1] = [node]
    return len(order) - len(tails)


def _record(termination: Termination) -> TerminationRecord:
    return TerminationRecord(
        str(termination.reason), termination.limit, termination.detail, termination.best, termination.bound
    )
