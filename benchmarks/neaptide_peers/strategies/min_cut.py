"""What PyTorch's default partitioner holds: a minimum cut of bytes that never recomputes contractions.

It asks for no budget; the plan is simulated like any other. `min_cut_ratios` has the variant with one.
"""

from __future__ import annotations

import threading
from typing import Final

from neaptide.outcome import LimitGuard, Limits, Outcome
from neaptide.planner.objective import PlannedSequence, PlanningProblem
from neaptide.planner.recompute.chain.plans import BackwardPart, hand_back, units_of
from neaptide.planner.recompute.units import ForwardUnits
from neaptide_peers.strategies.saved_cut import compute_intensive, saved_units
from neaptide_peers.strategies.tables import conclude

NAME: Final = "min_cut"


def solve(
    problem: PlanningProblem, limits: Limits, interrupt: threading.Event | None = None
) -> Outcome[PlannedSequence]:
    """The start with all recomputed that the cut does not hold, unless that is worse. One maximum flow."""
    guard = LimitGuard(limits, interrupt)
    forward = units_of(problem)
    if isinstance(forward, str):
        return hand_back(problem, guard, NAME, forward)
    saved = saved_units(forward, compute_intensive(problem.step, forward))
    detail = f"{len(saved)} of {len(forward.units)} units held"
    return conclude(problem, guard, NAME, forward, [held_table(forward, saved)], detail)


def held_table(forward: ForwardUnits, saved: frozenset[int]) -> list[BackwardPart]:
    """The retention table of one backward with some units held from the start; what it recomputes it keeps."""
    return [BackwardPart(forward.turning, len(forward.order), saved)]
