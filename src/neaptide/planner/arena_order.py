"""The last look at a plan: how large an arena its schedule needs, and a nearby order where that is much above its bytes."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from neaptide.analysis.legality import check_schedule
from neaptide.errors import VerifyError
from neaptide.ir.graph import Graph
from neaptide.ir.schedule import Schedule
from neaptide.layout.from_schedule import schedule_buffers
from neaptide.layout.lower_arena import lower_arena
from neaptide.layout.problem import LayoutProblem
from neaptide.outcome import LimitGuard, Limits
from neaptide.planner.pricing import Pricing
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.problem import StepProblem

# Layouts of moved orders; few plans need any.
_MOST_LAYOUTS = 40


@dataclass(frozen=True, slots=True)
class PlannedArena:
    """A node sequence and the arena of what it makes.

    Attributes:
        arena_bytes: of all storages that it makes and does not hand back, as they would be laid out in one block.
        lower_bound_bytes: no layout of this sequence has a smaller arena.
    """

    sequence: tuple[int, ...]
    arena_bytes: int
    lower_bound_bytes: int


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
