"""Recomputation and stays on the host by one program on a chain (Beaumont et al. 2021, POFO), several options a block.

`neaptide.planner.offload.chain_program` has the program, `chain_stays` how its answers are carried out. Here the fastest
of these that fits is the answer as it is.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from neaptide.outcome import LimitGuard, Limits, Outcome
from neaptide.peers.strategies import rotor
from neaptide.planner.objective import PlannedSequence, PlanningProblem
from neaptide.planner.offload.carried import OffloadPlan
from neaptide.planner.offload.chain_stays import chain_plans
from neaptide.planner.offload.host import HostSpace
from neaptide.schedule.problem import StepProblem

NAME: Final = "pofo"


def solve(
    problem: PlanningProblem, limits: Limits, interrupt: threading.Event | None = None
) -> Outcome[PlannedSequence]:
    """The plan where nothing can be copied: that of rotor, of which the program is an extension."""
    outcome = rotor.solve(problem, limits, interrupt)
    return replace(outcome, value=replace(outcome.require(), strategy=NAME))


def choose_stays(
    step: StepProblem,
    budget_bytes: int,
    host: HostSpace,
    known: Sequence[PlannedSequence],
    limits: Limits,
    interrupt: threading.Event | None = None,
) -> Outcome[OffloadPlan]:
    """The fastest plan of the program that fits; never worse than those that are known.

    Args:
        step: the program.
        budget_bytes: highest bytes on the device, workspace included.
        host: room there, and links.
        known: plans by recomputation alone with one order of first executions, at least one.
        limits: of the search.
        interrupt: set it to stop.
    """
    guard = LimitGuard(limits, interrupt)
    best = min((OffloadPlan(plan) for plan in known), key=lambda plan: plan.rank(budget_bytes))
    problem = PlanningProblem(step, budget_bytes, start=tuple(dict.fromkeys(known[0].sequence)))
    for carried in chain_plans(problem, host, guard):
        found = carried.plan(NAME)
        if found.host_bytes <= host.nbytes and found.rank(budget_bytes) < best.rank(budget_bytes):
            best = found
    return guard.finish(best, best=best.planned.seconds)
