"""Drop what is cheap to recompute: hold what convolutions and matmuls make, recompute what lies between them.

Normalisations, activations and pooling take little time for their bytes (Chen et al. 2016, section 4; selective
checkpointing in frameworks). A chain of such operations that never passes a contraction, such as the sums of a
residual stream, would have to be recomputed from its beginning: every few steps one of it is held.
"""

from __future__ import annotations

import threading
from typing import Final

from neaptide.outcome import LimitGuard, Limits, Outcome
from neaptide.planner.objective import PlannedSequence, PlanningProblem
from neaptide.planner.recompute.chain.plans import BackwardPart, hand_back, units_of
from neaptide.planner.recompute.units import ForwardUnits
from neaptide.schedule.problem import StepProblem
from neaptide_peers.strategies.tables import conclude

NAME: Final = "drop_cheap"
# Cheap operations recomputed in a row: normalise, activate, pool.
_LONGEST: Final = 3


def solve(
    problem: PlanningProblem, limits: Limits, interrupt: threading.Event | None = None
) -> Outcome[PlannedSequence]:
    """The start with cheap units recomputed just before the backward reads them. O(recomputations x steps)."""
    guard = LimitGuard(limits, interrupt)
    forward = units_of(problem)
    if isinstance(forward, str):
        return hand_back(problem, guard, NAME, forward)
    held = held_units(problem.step, forward)
    table = [BackwardPart(forward.turning, len(forward.order), held)]
    detail = f"{len(held)} of {len(forward.units)} held"
    return conclude(problem, guard, NAME, forward, [table], detail)


def held_units(step: StepProblem, forward: ForwardUnits) -> frozenset[int]:
    """Creators of the units that are held: contractions, and one of every few cheap ones in a row."""
    depth: dict[int, int] = {}
    for creator, unit in forward.units.items():
        if step.is_contraction[creator] or unit.is_pinned:
            depth[creator] = 0
        else:
            # An operand that runs later writes to the unit; it lies no deeper.
            longest = 1 + max((depth.get(operand, 0) for operand in unit.operands), default=0)
            depth[creator] = 0 if longest > _LONGEST else longest
    return frozenset(creator for creator, deep in depth.items() if not deep)
