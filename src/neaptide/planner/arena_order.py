"""The last look at a plan: how large an arena its schedule needs, and a nearby order where that is much above its bytes.

What is known of a plan that was moved is told anew.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace

from neaptide.analysis.legality.schedule import check_schedule
from neaptide.errors import VerifyError
from neaptide.ir.graph import Graph
from neaptide.ir.schedule import Schedule
from neaptide.layout.from_schedule import schedule_buffers
from neaptide.layout.lower_arena import lower_arena
from neaptide.layout.problem import LayoutProblem
from neaptide.outcome import LimitGuard, Limits, Outcome, Termination, TerminationReason
from neaptide.planner.graphs.graph_search import GraphSearch
from neaptide.planner.objective import PlannedSequence
from neaptide.planner.portfolio import bounded_ending
from neaptide.planner.pricing import Pricing
from neaptide.planner.recompute.bounds.certificate import recompute_bound
from neaptide.planner.recompute.curve.least_memory import LEAST_MEMORY
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.problem import StepProblem

# Layouts of moved orders; few plans need any.
_MOST_LAYOUTS = 40


@dataclass(frozen=True, slots=True)
class PlannedArena:
    """A node sequence and the arena of what it makes."""

    sequence: tuple[int, ...]
    arena_bytes: int  # of all storages that it makes and does not hand back
    lower_bound_bytes: int  # no layout of this sequence has a smaller arena


def settle_arena(
    graph: Graph,
    step: StepProblem,
    pricing: Pricing,
    sequence: tuple[int, ...],
    limits: Limits,
    interrupt: threading.Event | None = None,
    *,
    may_move: bool = True,
) -> PlannedArena:
    """Lay a sequence out, and move steps a little where its arena is more than a hundredth above its bytes.

    The peak with workspace and the number of executions stay what they are, or fall.
    """
    most = Evaluator(step, sequence).peak
    guard, sizes = LimitGuard(limits, interrupt), pricing.prices(graph).storage_bytes

    def buffers(order: Sequence[int]) -> LayoutProblem:
        schedule = Schedule.from_nodes(graph, order)
        return schedule_buffers(
            graph, schedule, binding=pricing.binding, storage_bytes=sizes, device=step.device
        ).problem

    def is_legal(order: Sequence[int]) -> bool:
        # A refusal is an answer here: most moves of a step break a dependency.
        try:
            schedule = Schedule.from_nodes(graph, order)
            check_schedule(graph, schedule, pricing.registry)
        except VerifyError:
            return False
        return Evaluator(step, order).peak <= most

    work = _MOST_LAYOUTS if may_move else 0
    found = lower_arena(
        sequence, buffers, is_legal, Limits(guard.remaining_s(), work, limits.seed), interrupt
    ).require()
    return PlannedArena(found.order, found.layout.arena_bytes or 0, found.layout.lower_bound_bytes)


def moved_outcome(
    search: GraphSearch, outcome: Outcome[PlannedSequence], sequence: tuple[int, ...]
) -> Outcome[PlannedSequence]:
    """The outcome of a search whose plan has been moved: of another order no bound on the peak is known, and its own on the time."""
    step, before, ended = search.step, outcome.require(), outcome.termination
    moved = PlannedSequence.evaluate(step, sequence, before.strategy)
    peak, is_lowest = moved.peak_with_workspace_bytes, search.longest() is not None
    has_other_order = tuple(dict.fromkeys(before.sequence)) != tuple(dict.fromkeys(moved.sequence))
    is_timed = before.peak_with_workspace_bytes <= search.allowed and len(before.sequence) > step.node_count
    if is_lowest and has_other_order:
        reason = TerminationReason.FEASIBLE if ended.reason is TerminationReason.OPTIMAL else ended.reason
        is_whole = ended.reason is TerminationReason.INFEASIBLE or LEAST_MEMORY not in ended.detail
        ended = Termination(reason, ended.limit, ended.detail if is_whole else LEAST_MEMORY, peak)
    elif has_other_order and is_timed and ended.bound is not None:
        guard = LimitGuard(Limits(search.limits.time_s), search.interrupt)
        proved = recompute_bound(step, search.allowed, sequence=moved.sequence, guard=guard)
        is_cut = ended.reason is TerminationReason.INTERRUPTED
        unproved = TerminationReason.INTERRUPTED if is_cut else TerminationReason.FEASIBLE
        ended = bounded_ending(step, moved, proved, ended.limit, unproved)
    elif is_lowest or ended.best == before.peak_with_workspace_bytes:
        ended = replace(ended, best=peak)
    return replace(outcome, value=moved, termination=ended)
