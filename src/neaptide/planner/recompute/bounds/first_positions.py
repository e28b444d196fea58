"""Which steps the bounds look at first: where the backward begins, the highest ones, and an even grid."""

from __future__ import annotations

import numpy as np

from neaptide.linear.arrays import Flags
from neaptide.planner.recompute.bounds.step_tables import StepTables
from neaptide.planner.recompute.settings import SETTINGS


def first_positions(tables: StepTables, is_above: Flags, *, is_narrow: bool = False) -> list[int]:
    """Positions to ask first, without repetition. O(positions).

    Args:
        tables: of the order.
        is_above: by position, whether its bytes are above the budget; at least one is.
        is_narrow: a part of each kind alone, behind a look at other steps.
    """
    few = SETTINGS.first_steps // (SETTINGS.looks if is_narrow else 1)
    above = np.flatnonzero(is_above)
    grid = above[np.linspace(0, len(above) - 1, 2 * few).astype(np.int64)]
    highest = above[np.argsort(-tables.profile[above], kind="stable")[:few]]
    phases, order = tables.step.phases, tables.order.tolist()
    first = next((k for k, node in enumerate(order) if phases[node] == "backward"), len(order))
    begin = above[(above >= first - 1) & (above < first + few)]
    return list(dict.fromkeys([*begin.tolist(), *highest.tolist(), *grid.tolist()]))
