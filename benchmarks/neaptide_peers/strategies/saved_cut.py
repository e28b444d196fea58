"""What to hold for the backward by a minimum cut of bytes: the rule of PyTorch's default partitioner.

After He et al. (functorch's `min_cut_rematerialization_partition`): every forward unit is an arc whose capacity is its
bytes; what must not run again hangs at the source, what the backward reads at the sink, and the cut is what is saved.
The rule knows one number, the bytes saved; where they are live, and what is live beside them, it does not ask.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from neaptide.linear.rows import one_row
from neaptide.linear.solver import solve_mixed
from neaptide.linear.tolerances import HALF, WHOLE_GAP
from neaptide.planner.recompute.units import ForwardUnits
from neaptide.schedule.order.bounds.flow import INFINITE, FlowNetwork
from neaptide.schedule.problem import StepProblem


def compute_intensive(step: StepProblem, forward: ForwardUnits) -> frozenset[int]:
    """Creators of the units made by contractions: what the rule never recomputes by default."""
    return frozenset(creator for creator in forward.units if step.is_contraction[creator])


def saved_units(forward: ForwardUnits, banned: Collection[int]) -> frozenset[int]:
    """Creators of the units to hold: the fewest bytes from which the backward can be run.

    Args:
        forward: the forward part.
        banned: units that must not run again beside those that cannot.
    """
    index = {creator: 2 * place for place, creator in enumerate(forward.units)}
    source, sink = 2 * len(index), 2 * len(index) + 1
    network = FlowNetwork(2 * len(index) + 2)
    read = {unit for reads in forward.reads for unit in reads}
    for creator, unit in forward.units.items():
        enter, leave = index[creator], index[creator] + 1
        network.add_arc(enter, leave, unit.nbytes)
        if unit.is_pinned or creator in banned:
            network.add_arc(source, enter, INFINITE)
        if creator in read:
            network.add_arc(leave, sink, INFINITE)
        for operand in unit.operands:
            network.add_arc(index[operand] + 1, enter, INFINITE)
    network.maximum_flow(source, sink)
    reached = network.reached(source)
    return frozenset(c for c, enter in index.items() if reached[enter] and not reached[enter + 1])


def worth_saving(forward: ForwardUnits, units: Collection[int], budget_bytes: int) -> frozenset[int]:
    """Of some units those that save most seconds within some bytes: the 0/1 knapsack after `activation_memory_budget`."""
    ordered = sorted(units)
    if not ordered:
        return frozenset()
    seconds = np.array([forward.units[unit].seconds for unit in ordered])
    nbytes = np.array([forward.units[unit].nbytes for unit in ordered], dtype=float)
    scale = float(nbytes.max()) or 1.0
    found = solve_mixed(
        -seconds / (float(seconds.max()) or 1.0),
        [one_row(nbytes / scale, budget_bytes / scale)],
        np.zeros(len(ordered)),
        np.ones(len(ordered)),
        np.ones(len(ordered)),
        relative_gap=WHOLE_GAP,
    )
    if found.values is None:
        return frozenset()
    return frozenset(unit for unit, value in zip(ordered, found.values.tolist(), strict=True) if value > HALF)
