"""Recomputation and stays on the host by one program on a chain (Beaumont et al. 2021, POFO), several options a block.

`pofo_program` has the program, `pofo_plans` how its answers are carried out. Here the fastest
of these that fits is the answer as it is.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Final

from neaptide.outcome import LimitGuard, Limits, Outcome
from neaptide.planner.objective import PlannedSequence, PlanningProblem
from neaptide.planner.offload.carried import OffloadPlan
from neaptide.planner.offload.problem import OffloadProblem
from neaptide_peers.strategies import rotor
from neaptide_peers.strategies.pofo_plans import chain_plans

NAME: Final = "pofo"


def solve(
    problem: PlanningProblem, limits: Limits, interrupt: threading.Event | None = None
) -> Outcome[PlannedSequence]:
    """The plan where nothing can be copied: that of rotor, of which the program is an extension."""
    outcome = rotor.solve(problem, limits, interrupt)
    return replace(outcome, value=replace(outcome.require(), strategy=NAME))


def choose_offload(
    problem: OffloadProblem, limits: Limits, interrupt: threading.Event | None = None
) -> Outcome[OffloadPlan]:
    """The fastest plan of the program that fits; never worse than those that are known.

    Args:
        problem: the step, its budget, the host and what is known.
        limits: of the search.
        interrupt: set it to stop.
    """
    guard = LimitGuard(limits, interrupt)
    budget_bytes, host = problem.budget_bytes, problem.host
    best = problem.best_known()
    for carried in chain_plans(PlanningProblem(problem.step, budget_bytes, start=problem.order), host, guard):
        found = carried.plan(NAME)
        if found.host_bytes <= host.nbytes and found.rank(budget_bytes) < best.rank(budget_bytes):
            best = found
    return guard.finish(best, best=best.planned.seconds)
