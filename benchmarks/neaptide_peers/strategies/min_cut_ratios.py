"""PyTorch's `activation_memory_budget`: the minimum cut with fewer bans, for a share of the bytes it saves by default.

A knapsack picks the contractions that are worth their bytes; the others may be recomputed like anything else. A share
is no budget in bytes, so all are simulated and the best one that fits counts. PyTorch weighs contractions by counted
operations, one that its counter does not know as nothing; here they weigh their seconds, so the plans are somewhat
better. Ratio 1 is its cut with all heuristics off; PyTorch's mildest plans, which also hold whatever is not
element-wise, lie between that and no plan.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Final

from neaptide.outcome import LimitGuard, Limits, Outcome
from neaptide.planner.objective import PlannedSequence, PlanningProblem
from neaptide.planner.recompute.chain.plans import BackwardPart, hand_back, units_of
from neaptide.planner.recompute.units import ForwardUnits
from neaptide.schedule.problem import StepProblem
from neaptide_peers.strategies.min_cut import held_table
from neaptide_peers.strategies.saved_cut import compute_intensive, saved_units, worth_saving
from neaptide_peers.strategies.tables import conclude

NAME: Final = "min_cut_ratios"
_RATIOS: Final = tuple(k / 20 for k in range(20, -1, -1))


def solve(
    problem: PlanningProblem, limits: Limits, interrupt: threading.Event | None = None
) -> Outcome[PlannedSequence]:
    """The best of 21 ratios for the budget; at worst the start. A knapsack and a maximum flow each."""
    guard = LimitGuard(limits, interrupt)
    forward = units_of(problem)
    if isinstance(forward, str):
        return hand_back(problem, guard, NAME, forward)
    tables = (table for _, table in ratio_tables(problem.step, forward))
    detail = f"{len(_RATIOS)} ratios"
    return conclude(problem, guard, NAME, forward, tables, detail)


def ratio_tables(step: StepProblem, forward: ForwardUnits) -> Iterator[tuple[float, list[BackwardPart]]]:
    """Ratios from 1 down, and the retention table of each that differs from the ones before."""
    intense = compute_intensive(step, forward)
    by_default = forward.nbytes(saved_units(forward, intense))
    seen: set[frozenset[int]] = set()
    for ratio in _RATIOS:
        banned = intense if ratio == 1 else worth_saving(forward, intense, int(ratio * by_default))
        saved = saved_units(forward, banned)
        if saved not in seen:
            seen.add(saved)
            yield ratio, held_table(forward, saved)
