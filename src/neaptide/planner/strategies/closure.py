"""Recomputation by the closure model at one step, then repair and put back by marginal prices.

The step is where the backward begins, or the highest one of a program without a backward. The model sees no other
step, so its budget is scanned downwards: a smaller share leaves room for what runs again elsewhere. Each answer is
carried out exactly, repaired where another step is too high, and relaxed where there is room; the best one counts.
"""

from __future__ import annotations

import threading
from typing import Final

from neaptide.outcome import LimitGuard, Limits, Outcome
from neaptide.planner.objective import PlannedSequence, PlanningProblem
from neaptide.planner.recompute.closure_model import held_creators, model_at
from neaptide.planner.recompute.descents import descent_guard
from neaptide.planner.recompute.forward_units import turning_point
from neaptide.planner.recompute.settings import SETTINGS
from neaptide.planner.strategies.greedy_recompute import GreedyRecompute
from neaptide.schedule.evaluate import Evaluator

NAME: Final = "closure"


def solve(
    problem: PlanningProblem, limits: Limits, interrupt: threading.Event | None = None
) -> Outcome[PlannedSequence]:
    """The start with the storages dropped that the closure model does not hold.

    A start with repetitions, or one within the budget, is returned as it is. The peak is never higher than
    that of the start.
    """
    guard = LimitGuard(limits, interrupt)
    step = problem.step
    start = PlannedSequence.evaluate(step, problem.first_sequence(), NAME)
    best = start
    is_above = start.peak_with_workspace_bytes > problem.budget_bytes
    if is_above and 0 < step.node_count == len(start.sequence):
        evaluator = Evaluator(step, problem.first_sequence())
        model = model_at(evaluator, turning_point(evaluator))
        tried: set[frozenset[int]] = set()
        misses = 0
        # In whole numbers for the whole room alone.
        shares = ((1.0, True), (1.0, False), *((share, False) for share in SETTINGS.closure_shares))
        for share, whole in shares:
            if guard.check_now() is not None or misses >= SETTINGS.misses:
                break
            room = model.room(problem.budget_bytes, share)
            held = held_creators(step, model, room, whole=whole, time_s=guard.remaining_s())
            if held is None or held in tried:
                continue
            tried.add(held)
            inner = descent_guard(guard, step.node_count, interrupt)
            search = GreedyRecompute(problem, inner)
            search.drop_all_but(model, held)
            found = PlannedSequence.of(search.evaluator, NAME)
            guard.exhausted(inner.work)
            if found.rank(problem.budget_bytes) < best.rank(problem.budget_bytes):
                best, misses = found, 0
            else:
                misses += 1
            if inner.check_now() == "work":
                # Repairs have piled up: what holds less has more of them.
                break
    is_free = best is start and start.peak_with_workspace_bytes <= problem.budget_bytes
    return guard.finish(best, best=best.seconds, bound=best.seconds if is_free else None)
