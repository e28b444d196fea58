"""The closure model: at one step, which units are held, which are recomputed later, which are gone. One small program.

Before a step every unit is either *held* across it, *recomputed* behind it, or *gone*. A unit that is recomputed
requires operands that are held or recomputed. A unit that is used behind the step is not gone. Of the choices that fit
into the bytes, the one with the least recomputed seconds is wanted. There are two variables a unit. Every row but the
one of bytes is a difference of two, so without that row the program is a minimum cut, and its relaxation is integral.
With it few variables are fractional: they are rounded, and the exact repair behind it mends what that breaks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from neaptide.linear.sparse_program import SparseProgram
from neaptide.linear.tolerances import HALF, WHOLE_GAP
from neaptide.planner.recompute.settings import SETTINGS
from neaptide.planner.recompute.units import Unit, unit_of, writers
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.problem import StepProblem
from neaptide.schedule.transfers import TO_END


@dataclass(frozen=True, slots=True)
class ClosureModel:
    """The units at one step, as arrays over units.

    Attributes:
        creators: node of each unit.
        seconds: of recomputing it.
        nbytes: of holding it.
        operands: pairs (unit, unit that it needs to be recomputed).
        is_used: something at or behind the step needs it.
        is_pinned: it must be held.
        fixed_bytes: at the step beyond the units: its new outputs and workspace, what is resident.
    """

    creators: tuple[int, ...]
    seconds: tuple[float, ...]
    nbytes: tuple[int, ...]
    operands: tuple[tuple[int, int], ...]
    is_used: tuple[bool, ...]
    is_pinned: tuple[bool, ...]
    fixed_bytes: int

    def room(self, budget_bytes: int, share: float) -> int:
        """Bytes at the step where the units have a share of what a budget leaves them."""
        return self.fixed_bytes + int(share * (budget_bytes - self.fixed_bytes))


def model_at(evaluator: Evaluator, position: int) -> ClosureModel:
    """The model of a sequence without repetitions, at a position. O(size of the problem)."""
    step = evaluator.problem
    place = evaluator.place_of
    here = int(evaluator.order[position])
    creators = [n for n in evaluator.order[:position].tolist() if step.created[n]]
    index = {creator: unit for unit, creator in enumerate(creators)}
    crossing, pinned_storages = _crossing(evaluator, position)
    units = [_unit_before(step, creator, position, place) for creator in creators]
    crosses = [[s for s in unit.storages if s in crossing] for unit in units]
    pairs = {
        (number, index[step.creator[storage]])
        for number, unit in enumerate(units)
        for storage in unit.reads
        if step.creator[storage] in index
    }
    fixed = (
        step.resident_bytes + step.workspace[here] + sum(step.storage_bytes[s] for s in step.created[here])
    )
    return ClosureModel(
        tuple(creators),
        tuple(unit.seconds for unit in units),
        tuple(
            sum(step.storage_bytes[s] for s in mine or unit.storages)
            for mine, unit in zip(crosses, units, strict=True)
        ),
        tuple(sorted(pairs)),
        tuple(bool(mine) for mine in crosses),
        tuple(
            (bool(mine) and unit.is_refused) or not pinned_storages.isdisjoint(unit.storages)
            for mine, unit in zip(crosses, units, strict=True)
        ),
        fixed,
    )


def _unit_before(step: StepProblem, creator: int, position: int, place: Callable[[int], int]) -> Unit:
    """A unit as it is in front of a position: later writers do not count."""
    return unit_of(
        step, creator, (creator, *sorted(w for w in writers(step, creator) if place(w) < position))
    )


def held_creators(
    step: StepProblem,
    model: ClosureModel,
    budget_bytes: int,
    *,
    whole: bool = False,
    time_s: float | None = None,
) -> frozenset[int] | None:
    """Creators of the units that are held; None when nothing fits.

    Args:
        step: the problem of the model.
        model: the units at one step.
        budget_bytes: highest bytes at that step; rounding may miss it by a unit.
        whole: solve the program in whole numbers, nearly to the end, instead of rounding its relaxation.
        time_s: of the solver.
    """
    count = len(model.creators)
    if not count:
        return frozenset()
    program = SparseProgram()
    # Held is what is kept (not recomputed) and not gone.
    kept = program.variables(np.ones(count, dtype=bool))
    gone = program.variables(np.ones(count, dtype=bool))
    program.add_rows(((gone, 1.0), (kept, -1.0)), 0.0)
    unit, operand = np.array(model.operands, dtype=np.int64).reshape(-1, 2).T
    program.add_rows(((gone[operand], 1.0), (kept[unit], -1.0)), 0.0)
    nbytes = np.array(model.nbytes, dtype=np.float64)
    sizes = nbytes / max(float(nbytes.max()), 1.0)
    sized = np.flatnonzero(sizes)
    room = (budget_bytes - model.fixed_bytes) / max(*model.nbytes, 1)
    program.add_row(
        np.concatenate((kept[sized], gone[sized])), np.concatenate((sizes[sized], -sizes[sized])), room
    )
    seconds = np.array(model.seconds)
    cost = np.concatenate((-seconds / max(float(seconds.max()), 1e-30), np.zeros(count)))
    low, high = np.zeros(2 * count), np.ones(2 * count)
    pinned = np.array(model.is_pinned, dtype=bool)
    stuck = np.array([bool(step.refusals[creator]) for creator in model.creators], dtype=bool)
    low[kept[pinned | stuck]] = 1.0
    high[gone[pinned | np.array(model.is_used, dtype=bool)]] = 0.0
    program.close(cost, low, high)
    if whole:
        found = program.solve_whole(nodes=SETTINGS.whole_nodes, time_s=time_s, relative_gap=WHOLE_GAP)
    else:
        found = program.relax(time_s)
    if found.values is None:
        return None
    held = found.values[kept] - found.values[gone] > HALF
    return frozenset(
        creator for creator, is_held in zip(model.creators, held.tolist(), strict=True) if is_held
    )


def _crossing(evaluator: Evaluator, position: int) -> tuple[set[int], set[int]]:
    """Storages made before a position and needed at it or behind it; those that it needs itself."""
    step = evaluator.problem
    here = int(evaluator.order[position])
    crossing, pinned = set(), set()
    for storage, spans in enumerate(evaluator.spans):
        for start, end in spans:
            if evaluator.position[start] < position and (
                end == TO_END or evaluator.position[end] >= position
            ):
                crossing.add(storage)
                if here in step.roles[storage]:
                    pinned.add(storage)
    return crossing, pinned
