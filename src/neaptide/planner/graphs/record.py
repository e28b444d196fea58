"""What a search found, as the plain data of a plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from neaptide.ir.graph import Graph
from neaptide.ir.loops.orders import BodyOrder
from neaptide.outcome import Outcome
from neaptide.planner.arena_order import PlannedArena
from neaptide.planner.objective import PlannedSequence
from neaptide.planner.recompute.units import recompute_units
from neaptide.planner.strategies.program_order import baseline
from neaptide.planner.updates import update_name, updates_moved_earlier
from neaptide.plans import (
    STEADY,
    AssumedBytes,
    MovesSummary,
    PlannedProgram,
    Predictions,
    Recomputation,
    operations_moved,
)
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.problem import StepProblem

_AS_THE_GRAPH_SAYS: Final = AssumedBytes()
_RANDOM_STATE_BYTES: Final = {"cpu": 5056, "cuda": 16}


def planned_program(
    graph: Graph,
    step: StepProblem,
    outcome: Outcome[PlannedSequence],
    *,
    budget_bytes: int,
    role: str = STEADY,
    assumed: AssumedBytes = _AS_THE_GRAPH_SAYS,
    bodies: tuple[BodyOrder, ...] = (),
    arena: PlannedArena | None = None,
) -> PlannedProgram:
    """The entry of a plan for the sequence that a search found; the fingerprint of its graph is still to come."""
    found, before = outcome.require(), baseline(step)
    order = tuple(dict.fromkeys(found.sequence))
    updates = tuple(update_name(step, group) for group in updates_moved_earlier(step, order))
    return PlannedProgram(
        role=role,
        name=graph.name,
        fingerprint="",
        node_count=step.node_count,
        sequence=found.sequence,
        strategy=found.strategy,
        budget_bytes=budget_bytes,
        moves=MovesSummary(
            len(updates), updates, told_recomputations(step, found.sequence), operations_moved(order)
        ),
        predictions=Predictions(
            peak_bytes=found.peak_bytes,
            peak_with_workspace_bytes=found.peak_with_workspace_bytes,
            baseline_peak_bytes=before.peak_bytes,
            baseline_peak_with_workspace_bytes=before.peak_with_workspace_bytes,
            persistent_bytes=step.persistent_bytes,
            lower_bound_bytes=step.lower_bound_bytes,
            order_lower_bound_bytes=step.order_lower_bound_bytes,
            seconds=found.seconds,
            baseline_seconds=before.seconds,
            arena_bytes=0 if arena is None else arena.arena_bytes,
            arena_lower_bound_bytes=0 if arena is None else arena.lower_bound_bytes,
            random_state_bytes=random_state_bytes(graph, found.sequence),
        ),
        termination=outcome.termination,
        assumed=assumed,
        bodies=bodies,
    )


def told_recomputations(step: StepProblem, sequence: Sequence[int]) -> tuple[Recomputation, ...]:
    """What a sequence recomputes, in running order."""
    return tuple(
        Recomputation(
            unit.target, step.storage_names[unit.target], unit.nbytes, unit.seconds, unit.nodes, unit.before
        )
        for unit in recompute_units(Evaluator(step, sequence))
    )


def random_state_bytes(graph: Graph, sequence: Sequence[int]) -> int:
    """Bytes on the host of the states under which draws of a sequence are repeated, were they kept all at once.

    A state is kept from the first draw to its last repetition. PyTorch's generator has 5,056 bytes on the CPU
    (mt19937) and 16 on CUDA (Philox: seed and offset). O(length of the sequence).
    """
    again = {node for node, runs in Counter(sequence).items() if runs > 1}
    streams = (graph.nodes[node].effects.rng for node in again)
    return sum(
        _RANDOM_STATE_BYTES.get(stream.partition(":")[0], 0) for stream in streams if stream is not None
    )
