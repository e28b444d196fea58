"""The closure model: at one step, what is held, what is made again later, what is gone. One small program.

Before a step every unit (all that one node creates) is either *held* across it, *made again* behind it, or *gone*.
What is made again needs operands that are held or made again; what is used behind the step must not be gone. Among
the choices that fit into the bytes, the one with the least seconds made again is wanted. There are two variables a
unit, and every row but the byte row is a difference, so without that row the program is a minimum cut and its
relaxation is integral; with it few variables are fractional, and rounding is left to the exact repair behind it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.sparse import csr_array

from neaptide.linear.solver import WHOLE_GAP, solve_fractions, solve_mixed
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.problem import StepProblem
from neaptide.schedule.transfers import TO_END

# Of branch and bound: closer than that would be lost in the repair behind it.
_WHOLE_NODES: Final = 200


@dataclass(frozen=True, slots=True)
class ClosureModel:
    """The units at one step, as arrays over units.

    Attributes:
        creators: node of each unit.
        seconds: of making it again.
        nbytes: of holding it.
        operands: pairs (unit, unit that it needs to be made again).
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


def model_at(evaluator: Evaluator, position: int) -> ClosureModel:
    """The model of a sequence without repetitions, at a position. O(size of the problem)."""
    step = evaluator.problem
    place = evaluator.place_of
    here = int(evaluator.order[position])
    creators = [n for n in evaluator.order[:position].tolist() if step.created[n]]
    index = {creator: unit for unit, creator in enumerate(creators)}
    crossing, pinned_storages = _crossing(evaluator, position)
    seconds, nbytes, used, pinned = [], [], [], []
    pairs: set[tuple[int, int]] = set()
    for unit, creator in enumerate(creators):
        created = step.created[creator]
        nodes = [creator, *(w for s in created for w in step.writers[s] if place(w) < position)]
        seconds.append(sum(step.repeat_seconds[n] for n in nodes))
        mine = [s for s in created if s in crossing]
        nbytes.append(sum(step.storage_bytes[s] for s in mine or created))
        used.append(bool(mine))
        is_stuck = bool(mine) and any(step.refusals[n] for n in nodes)
        pinned.append(is_stuck or any(s in pinned_storages for s in created))
        for node in nodes:
            for value in step.operands[node]:
                storage = step.value_storage[value]
                other = index.get(step.creator[storage]) if storage >= 0 else None
                if other is not None and other != unit:
                    pairs.add((unit, other))
    fixed = (
        step.resident_bytes + step.workspace[here] + sum(step.storage_bytes[s] for s in step.created[here])
    )
    return ClosureModel(
        tuple(creators),
        tuple(seconds),
        tuple(nbytes),
        tuple(sorted(pairs)),
        tuple(used),
        tuple(pinned),
        fixed,
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
    # Variables: kept[i] (not made again), then gone[i]; held is their difference.
    rows: list[int] = []
    columns: list[int] = []
    entries: list[float] = []
    upper: list[float] = []

    def at_most(smaller: int, larger: int) -> None:
        rows.extend((len(upper), len(upper)))
        columns.extend((smaller, larger))
        entries.extend((1.0, -1.0))
        upper.append(0.0)

    for unit in range(count):
        at_most(count + unit, unit)
    for unit, operand in model.operands:
        at_most(count + operand, unit)
    scale = max(*model.nbytes, 1)
    for unit, size in enumerate(model.nbytes):
        if size:
            rows.extend((len(upper), len(upper)))
            columns.extend((unit, count + unit))
            entries.extend((size / scale, -size / scale))
    upper.append((budget_bytes - model.fixed_bytes) / scale)
    largest = max(*model.seconds, 1e-30)
    cost = np.concatenate((-np.array(model.seconds) / largest, np.zeros(count)))
    low, high = np.zeros(2 * count), np.ones(2 * count)
    for unit, creator in enumerate(model.creators):
        if model.is_pinned[unit] or step.refusals[creator]:
            low[unit] = 1.0
        if model.is_pinned[unit] or model.is_used[unit]:
            high[count + unit] = 0.0
    matrix = csr_array((entries, (rows, columns)), shape=(len(upper), 2 * count))
    room = np.array(upper)
    if whole:
        found = solve_mixed(
            cost,
            [(matrix, -np.inf, room)],
            low,
            high,
            np.ones(2 * count),
            relative_gap=WHOLE_GAP,
            nodes=_WHOLE_NODES,
            time_s=time_s,
        )
    else:
        found = solve_fractions(cost, matrix, room, low, high, time_s=time_s)
    if found.values is None:
        return None
    held = found.values[:count] - found.values[count:] > 0.5
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
