"""Dynamic tensor rematerialization (Kirisame et al., ICLR 2021), simulated: evict greedily when the budget is reached.

The policy sees what has happened, never what comes: it is a peer of planning. `eviction="dtr"` evicts by the same score, in a
program with points. The other heuristics are strategies of this module too. The answer is a plan, so it is at or below the bytes of the run: between its last
use and its next recomputation nothing is held.
"""

from __future__ import annotations

import threading

from neaptide.outcome import LimitGuard, Limits, Outcome
from neaptide.planner.objective import PlannedSequence, PlanningProblem
from neaptide.planner.recompute.chain.plans import hand_back, start_of
from neaptide.units import format_bytes
from neaptide_peers.eviction.policy import heuristic
from neaptide_peers.eviction.run import SimulationStopped
from neaptide_peers.eviction.simulate import SimulatedRun, simulate


def solve_with(
    name: str, problem: PlanningProblem, limits: Limits, interrupt: threading.Event | None = None
) -> Outcome[PlannedSequence]:
    """What a policy does under the budget; the start where that is no better. Work is executions.

    Args:
        name: of the strategy and of the heuristic, one of `neaptide_peers.eviction.policy.HEURISTICS`.
        problem: the program; first executions keep the order of its start.
        limits: of the search.
        interrupt: set it to get the start.
    """
    guard = LimitGuard(limits, interrupt)
    order = problem.first_sequence()
    if len(order) != problem.step.node_count:
        return hand_back(problem, guard, name, "the start has recomputations already")
    start = start_of(problem, name)
    if start.peak_with_workspace_bytes <= problem.budget_bytes:
        return hand_back(problem, guard, name, "the start is within the budget")
    try:
        found = simulate(
            problem.step,
            order,
            heuristic(name),
            problem.budget_bytes,
            lambda: guard.exhausted() is None,
        )
    except SimulationStopped:
        return hand_back(problem, guard, name, "stopped before the end of the simulated run")
    made = PlannedSequence.evaluate(problem.step, found.sequence, name)
    detail = _detail(problem, found, made)
    if start.rank(problem.budget_bytes) <= made.rank(problem.budget_bytes):
        return guard.finish(start, best=start.seconds, detail=detail)
    return guard.finish(made, best=made.seconds, detail=detail)


def _detail(problem: PlanningProblem, found: SimulatedRun, made: PlannedSequence) -> str:
    totals = found.totals
    text = f"{totals.evicted} evictions, highest at {format_bytes(totals.peak_bytes)}"
    if totals.gave_up:
        return f"{text}; it gave up evicting after {totals.executions} executions"
    if made.peak_with_workspace_bytes > problem.budget_bytes:
        return f"{text}; nothing was left to evict there, so the budget is not met"
    return text
