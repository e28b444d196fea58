"""Which state is on the host between two steps: as little as brings a step within its budget, or all that may be.

Such a storage returns before its first use and leaves after its last one. All else is chosen around that as ever, so a
choice of storages is one question to the search. Storages come in the order of how long their copies would be waited
for, those first that need not be at all.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Final

import numpy as np

from neaptide.outcome import LimitGuard, Limits, Outcome
from neaptide.planner.offload.carried import Carried, OffloadPlan
from neaptide.planner.offload.lowest_peak import Choose
from neaptide.planner.offload.problem import OffloadProblem
from neaptide.planner.offload.search import choose_offload
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.timeline import OffloadClock

# Questions to the search: none between steps, as few storages as possible, all.
_QUESTIONS: Final = 3


def choose_with_state_between(
    problem: OffloadProblem,
    limits: Limits,
    interrupt: threading.Event | None = None,
    *,
    choose: Choose = choose_offload,
) -> Outcome[OffloadPlan]:
    """The fastest plan found within a budget, with state on the host between two steps where that is of use.

    O(three times what `choose` takes, and log storages times filling the gaps of the order).
    """
    guard = LimitGuard(limits, interrupt)
    step, budget = problem.step, problem.budget_bytes
    best = problem.best_known()
    asked: set[frozenset[int]] = set()
    for left, storages in zip(range(_QUESTIONS, 0, -1), _choices(problem, guard), strict=False):
        if problem.is_enough(best.planned) or storages in asked or guard.check_now():
            continue
        asked.add(storages)
        part = replace(problem, host=replace(problem.host, between=storages))
        outcome = choose(part, guard.left(left), interrupt)
        guard.exhausted(outcome.work)
        best = min(best, outcome.require(), key=lambda plan: plan.rank(budget))
    is_within = best.planned.peak_with_workspace_bytes <= budget
    return guard.finish(best, best=best.planned.seconds, bound=step.baseline_seconds if is_within else None)


def _choices(problem: OffloadProblem, guard: LimitGuard) -> list[frozenset[int]]:
    """Sets of storages: none, the smallest with which the order fits without recomputation, and all."""
    order = _in_order(problem)
    low, high = 0, len(order)
    # Work is for the search; to fill gaps without placing them costs little.
    filling = LimitGuard(Limits(time_s=guard.remaining_s()))
    while low < high and not guard.exhausted():
        middle = (low + high) // 2
        if _fits(problem, frozenset(order[:middle]), filling):
            high = middle
        else:
            low = middle + 1
    none = [frozenset[int]()] if problem.budget_bytes >= problem.step.lower_bound_with_state_away else []
    return [*none, frozenset(order[:high]), frozenset(order)]


def _fits(problem: OffloadProblem, storages: frozenset[int], guard: LimitGuard) -> bool:
    """Whether the order without recomputations is within the budget, with any gaps filled."""
    host = replace(problem.host, between=storages)
    carried = Carried(Evaluator(problem.step, problem.order), host, problem.budget_bytes)
    return carried.fill_until_within(guard) and carried.is_within()


def _in_order(problem: OffloadProblem) -> list[int]:
    """Storages that may be away between two steps and have room on the host, the cheapest first. O(storages x uses)."""
    step, host = problem.step, problem.host
    evaluator = Evaluator(step, problem.order)
    begins = OffloadClock.of(evaluator, host.out, host.back).begins_s
    ranked: list[tuple[float, float, int]] = []
    for storage in host.movable(step):
        if storage not in host.may_be_between:
            continue
        places = [evaluator.places[execution] for execution in evaluator.events(storage)]
        ahead = begins[min(places)] if step.state_bytes[storage] else 0.0
        after = begins[-1] - begins[max(places) + 1]
        nbytes = step.moved_bytes(storage)
        waited = max(host.out.seconds(nbytes) - after, 0.0)
        if step.state_bytes[storage]:
            waited += max(host.back.seconds(nbytes) - ahead, 0.0)
        ranked.append((waited, -(ahead + after) * nbytes, storage))
    ranked.sort()
    room = np.cumsum([step.moved_bytes(storage) for _, _, storage in ranked]) <= host.nbytes
    return [storage for (_, _, storage), fits in zip(ranked, room.tolist(), strict=True) if fits]
