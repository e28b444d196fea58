"""The order with the lowest peak, nothing run twice: what the ordering room finds and proves.

Plain training steps are in their best order but for the updates; programs with branches often are not. Memory that an
order saves costs no time, so it comes before any recomputation.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Final

from neaptide.outcome import LimitGuard, Limits, Outcome
from neaptide.planner.objective import PlannedSequence, PlanningProblem
from neaptide.planner.strategies import early_updates
from neaptide.planner.updates import with_late_overwrites
from neaptide.schedule.order.from_step import step_order_problem
from neaptide.schedule.order.portfolio import best_order
from neaptide.schedule.problem import StepProblem

NAME: Final = "best_order"


def order_work(step: StepProblem) -> int:
    """States and cuts of a search that ends by itself: less than a second."""
    return 500_000 // max(step.node_count, 1)


def solve(
    problem: PlanningProblem, limits: Limits, interrupt: threading.Event | None = None
) -> Outcome[PlannedSequence]:
    """The start's nodes in the best order found; the bound is that of orders. Work is counted in states and cuts.

    Updates are hoisted first, so it is never worse than `early_updates`. Without a limit the search ends at
    `order_work`. A start with repetitions is returned as it is.
    """
    step = problem.step
    start = problem.first_sequence()
    if len(start) != step.node_count:
        value = PlannedSequence.evaluate(step, start, NAME)
        detail = "the start repeats nodes: its order is left as it is"
        peak = value.peak_with_workspace_bytes
        return LimitGuard(limits, interrupt).finish(value, best=peak, detail=detail)
    hoisted = early_updates.solve(problem, limits, interrupt)
    early = replace(hoisted.require(), strategy=NAME)
    if limits.time_s is None and limits.work is None:
        limits = replace(limits, work=order_work(step))
    left = limits.after(hoisted.seconds, hoisted.work)
    found = best_order(step_order_problem(step, early.sequence), left, interrupt)
    result = found.require()
    value = early
    if result.peak_bytes < early.peak_with_workspace_bytes:
        order = tuple(early.sequence[op] for op in result.order)
        value = PlannedSequence.evaluate(step, with_late_overwrites(step, order), NAME)
    ended = found.termination
    ended = replace(
        ended,
        limit=None if ended.is_proved else ended.limit,
        best=value.peak_with_workspace_bytes,
        bound=result.order_lower_bound_bytes,
    )
    return Outcome(value, ended, hoisted.seconds + found.seconds, hoisted.work + found.work)
